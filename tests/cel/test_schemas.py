"""What schemas declare to rules: escaped names, types, and how large values can be."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.cel import CompileError, compile_expression
from kubeloop.cel.conversions import converter
from kubeloop.cel.declared import MOST_BYTES, DeclaredType, declare, environment
from kubeloop.cel.estimate import CostRange
from kubeloop.cel.identifier_escaping import escape, unescape
from kubeloop.schema.structural import parse

STRING = {"type": "string"}
NAMESPACED = {"type": "object", "properties": {"namespace": STRING}}
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": STRING}}


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


@pytest.mark.parametrize(
    ("identifier", "name"),
    [
        pytest.param("replicas", "replicas", id="a plain name stays"),
        pytest.param("x__dash__prop", "x-prop", id="dashes are read back"),
        pytest.param("a__dot__b__slash__c", "a.b/c", id="dots and slashes are read back"),
        pytest.param("redact__underscores__d", "redact__d", id="two underscores are read back"),
        pytest.param("a__b", "a__b", id="two underscores alone are no escape"),
        pytest.param("__namespace__", "namespace", id="a marked word is the word"),
        pytest.param("namespace", "namespace", id="a reserved word that is not marked stays"),
        pytest.param("a__namespace__", None, id="a marked word within a name is no escape"),
        pytest.param("a__none__b", None, id="an escape that does not exist leads to no field"),
    ],
)
def test_unescaping(identifier: str, name: str | None) -> None:
    assert unescape(identifier) == name


def declared(schema: dict[str, Any], *, is_root: bool = False) -> DeclaredType:
    found = declare(parse(schema), is_root=is_root)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("schema", "largest"),
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
def test_sizes(schema: dict[str, Any], largest: int) -> None:
    assert declared(schema).size_of(("self",)) == CostRange(0, largest)


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
        pytest.param(NAMESPACED, {"namespace": "x"}, "self.namespace == 'x' && has(self.namespace)", id="a reserved word after a dot"),
        pytest.param(NAMESPACED, {"namespace": "x"}, "self.__namespace__ == self.namespace", id="both names of a field"),
        pytest.param(NAMESPACED, {"namespace": "x"}, "self.?namespace.orValue('') == 'x'", id="a reserved word after .?"),
        pytest.param(NAMESPACED, {}, "!has(self.namespace) && !self.?namespace.hasValue()", id="a reserved word that is absent"),
        pytest.param(NAMESPACED, {"namespace": "x"}, "dyn(self)['namespace'] == 'x'", id="a reserved word as a key"),
        pytest.param(NAMESPACED, {"namespace": "x"}, "dyn(self).map(k, k) == ['__namespace__']", id="the escaped names as the keys"),
        pytest.param(OPEN, {"a": "x", "b": 1}, "!('b' in dyn(self)) && dyn(self).map(k, k) == ['a']", id="fields beside the schema's"),
        pytest.param(OPEN, {"a": "x", "b": 1}, "self == self", id="equality with fields beside the schema's"),
        pytest.param(
            {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["namespace"], "items": NAMESPACED},
            [{"namespace": "a"}, {"namespace": "b"}],
            "self != self",
            id="items keyed by a reserved word, which upstream cannot tell apart",
        ),
    ],
)
def test_values_are_seen_by_their_schema(schema: dict[str, Any], value: Any, expression: str) -> None:
    node = parse(schema)
    convert = converter(node)
    assert convert is not None
    program = compile_expression(expression, environment(declared(schema)))
    assert program.eval({"self": convert(value)}) is True


def test_the_size_of_a_field_is_known_by_its_escaped_name_only() -> None:
    bounded = {"type": "object", "properties": {"namespace": {**STRING, "maxLength": 20}}}
    of = environment(declared(bounded))
    costs = [
        compile_expression(f"self.{name}.matches('a')", of).most_cost(declared(bounded).size_of) for name in ("__namespace__", "namespace")
    ]
    assert costs[0] < 100
    assert costs[1] > 1_000_000


@pytest.mark.parametrize("word", ["in", "true", "false", "null"])
def test_words_of_the_grammar_are_no_field_names(word: str) -> None:
    schema = {"type": "object", "properties": {word: STRING}}
    with pytest.raises(CompileError, match="Syntax error"):
        compile_expression(f"self.{word} == 'x'", environment(declared(schema)))
    compile_expression(f"self.__{word}__ == 'x'", environment(declared(schema)))


def test_values_that_need_no_conversion_are_not_copied() -> None:
    assert converter(parse({"type": "object", "properties": {"a": STRING, "b": {"type": "array", "items": STRING}}})) is None
