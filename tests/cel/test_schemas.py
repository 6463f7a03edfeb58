"""What schemas declare to rules: escaped names, types, and how large values can be."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.cel import compile_expression
from kubeloop.cel.converting import converter
from kubeloop.cel.declared import MOST_BYTES, Declared, declare, environment
from kubeloop.cel.escaping import escape
from kubeloop.cel.estimate import Range
from kubeloop.schema.structural import parse

STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        pytest.param("replicas", "replicas", id="a plain name stays"),
        pytest.param("x-prop", "x__dash__prop", id="dashes are written out"),
        pytest.param("a.b/c", "a__dot__b__slash__c", id="dots and slashes are written out"),
        pytest.param("redact__d", "redact__underscores__d", id="two underscores are written out"),
        pytest.param("a_b", "a_b", id="one underscore stays"),
        pytest.param("namespace", "__namespace__", id="reserved words are marked"),
        pytest.param("string", "string", id="names of types are not reserved"),
        pytest.param("9a", None, id="a name that begins with a digit has no identifier"),
        pytest.param("a b", None, id="a name with a blank has no identifier"),
        pytest.param("é", None, id="a name with other letters has no identifier"),
        pytest.param("", None, id="no name has no identifier"),
    ],
)
def test_escaping(name: str, escaped: str | None) -> None:
    assert escape(name) == escaped


def declared(schema: dict[str, Any], *, is_root: bool = False) -> Declared:
    found = declare(parse(schema), is_root=is_root)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("schema", "most"),
    [
        pytest.param(STRING, MOST_BYTES - 2, id="a text without a bound is as large as a request"),
        pytest.param({**STRING, "maxLength": 5}, 20, id="a character has up to four bytes"),
        pytest.param({**STRING, "enum": ["a", "abc"]}, 3, id="an enum is as large as its largest value"),
        pytest.param({**STRING, "format": "date-time"}, 32, id="a moment has a largest text"),
        pytest.param({"type": "array", "items": STRING}, (MOST_BYTES - 2) // 3, id="a list holds as many items as fit into a request"),
        pytest.param({"type": "array", "items": STRING, "maxItems": 4}, 4, id="a list holds no more than its bound"),
        pytest.param({"type": "object", "additionalProperties": STRING}, (MOST_BYTES - 2) // 8, id="a map holds what fits into a request"),
        pytest.param({"x-kubernetes-int-or-string": True, "maxLength": 2}, 8, id="int-or-string has the size of its text"),
    ],
)
def test_sizes(schema: dict[str, Any], most: int) -> None:
    assert declared(schema).size_of(("self",)) == Range(0, most)


def test_required_fields_make_the_smallest_object_larger() -> None:
    schema = {"type": "object", "required": ["name"], "properties": {"name": STRING, "other": STRING}}
    assert declared(schema).least == 2 + len("name") + 2 + 4
    schema["properties"] = {"name": {**STRING, "default": ""}}
    assert declared(schema).least == 2


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"x-kubernetes-preserve-unknown-fields": True}, id="anything"),
        pytest.param({"type": "array"}, id="a list of anything"),
        pytest.param({"type": "object", "additionalProperties": {"x-kubernetes-preserve-unknown-fields": True}}, id="a map to anything"),
    ],
)
def test_what_has_no_type_is_not_declared(schema: dict[str, Any]) -> None:
    assert declare(parse(schema), is_root=False) is None


def test_a_root_has_a_name_and_nothing_else_of_its_metadata() -> None:
    fields = declared({"type": "object", "properties": {"metadata": {"type": "object"}}}, is_root=True).fields
    assert sorted(fields) == ["apiVersion", "kind", "metadata"]
    assert sorted(fields["metadata"].fields) == ["generateName", "name"]


@pytest.mark.parametrize(
    ("schema", "value", "expression"),
    [
        pytest.param({"type": "array", "x-kubernetes-list-type": "set", "items": STRING}, ["a", "b"], "self == ['b', 'a']", id="sets"),
        pytest.param({**STRING, "format": "byte"}, "aGk=", "self == b'hi'", id="bytes"),
        pytest.param({**STRING, "format": "date"}, "2020-02-03", "self.getDate() == 3", id="dates"),
        pytest.param({"type": "number"}, 2, "self == 2.0 && type(self) == double", id="whole numbers that are fractions by type"),
        pytest.param({"type": "object", "properties": {"a-b": STRING}}, {"a-b": "x"}, "self.a__dash__b == 'x'", id="escaped names"),
        pytest.param({"type": "object", "properties": {"a": {**STRING, "nullable": True}}}, {"a": None}, "!has(self.a)", id="null fields"),
    ],
)
def test_values_are_seen_by_their_schema(schema: dict[str, Any], value: Any, expression: str) -> None:
    node = parse(schema)
    convert = converter(node)
    assert convert is not None
    program = compile_expression(expression, environment(declared(schema)))
    assert program.eval({"self": convert(value)}) is True


def test_values_that_need_no_conversion_are_not_copied() -> None:
    assert converter(parse({"type": "object", "properties": {"a": STRING, "b": {"type": "array", "items": STRING}}})) is None
