"""The JSON Schema for editors, which is also the tree that documents are checked with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kubeloop.proxy.rules import rule_schema
from kubeloop.proxy.rules.schema import ACTIONS
from kubeloop.proxy.rules.structure import structural_mistakes
from tests.proxy.rules.rule_texts import rule

#: Keywords that ``structure.py`` checks, and keywords that only describe.
CHECKED = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "minProperties",
    "maxProperties",
    "const",
    "enum",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "exclusiveMinimum",
    "maximum",
}
DESCRIPTIVE = {"$schema", "$id", "title", "description", "default", "examples"}


def fields(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}.{name}", inner
        yield from fields(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from fields(schema[name], f"{path}[]")


def schemas(schema: Any) -> Iterator[Any]:
    yield schema
    yield from (inner for _, inner in fields(schema))
    for _, inner in fields(schema):
        yield from (inner[name] for name in ("items", "additionalProperties") if isinstance(inner.get(name), dict))


def test_every_field_has_a_title_and_a_description_that_is_a_sentence() -> None:
    lacking = [path for path, schema in fields(rule_schema()) if not schema.get("title") or not schema.get("description", "").endswith(".")]
    assert lacking == []


def test_every_keyword_is_checked() -> None:
    assert {keyword for schema in schemas(rule_schema()) for keyword in schema} <= CHECKED | DESCRIPTIVE


def test_every_example_is_valid() -> None:
    wrong = [
        (path, mistake)
        for path, schema in fields(rule_schema())
        for example in schema.get("examples", [])
        for mistake in structural_mistakes(example, schema, tuple(path.split(".")[-1:]))
    ]
    assert wrong == []


def test_the_schema_is_json_and_belongs_to_its_caller() -> None:
    schema = rule_schema()
    assert json.loads(json.dumps(schema)) == schema
    schema["properties"].clear()
    assert list(structural_mistakes(rule(), rule_schema())) == []


def test_the_actions_are_those_of_the_format() -> None:
    assert ACTIONS == ("drop", "set", "remove", "jsonPatch", "mergePatch", "mapAddresses", "python")
