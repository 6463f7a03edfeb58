"""Checks the structure of a document by a JSON Schema, and describes mistakes for the person who wrote the document."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kubeloop.meta.type_checks import described
from kubeloop.proxy.rules.documents import FieldKey
from kubeloop.types import JSONObject, JSONValue

#: Characters of the longest text that a mistake shows.
_LONGEST_SHOWN: Final = 60
#: From this similarity on, a word counts as a misspelling of another; "read" has 0.6 to "create", "fieldSelector" 0.77 to "labelSelector".
_CLOSE: Final = 0.8
#: What a text has to look like, by its pattern's field.
_EXPECTED: Final = {
    "name": 'a DNS name in lower case, such as "hide-internal"',
    "resources": 'a resource in plural and lower case, such as "pods", "pods/log" or "*"',
    "path": 'a JSON pointer, such as "/spec/replicas"',
    "from": 'a JSON pointer, such as "/spec/replicas"',
    "callable": '"module:function", such as "my.rules:rewrite"',
}
_TYPES: Final[dict[str, tuple[str, type | tuple[type, ...]]]] = {
    "object": ("a mapping", dict),
    "array": ("a list", list),
    "string": ("text", str),
    "boolean": ("true", bool),
    "integer": ("an integer", int),
    "number": ("a number", (int, float)),
}


def shown_key(key: FieldKey) -> str:
    """Return a key as text: ``spec.actions[1].set["spec.nodeName"]``."""
    shown = ""
    for part in key:
        if isinstance(part, int):
            shown += f"[{part}]"
        elif re.fullmatch(r"[\w$-]+", part):
            shown += f".{part}" if shown else part
        else:
            shown += f'["{part}"]'
    return shown


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return ``; did you mean X?`` for a known word that is close, else all known words."""
    near = closest(word, known)
    return f"; did you mean {quoted(near)}?" if near else f"; expected one of {', '.join(map(quoted, known))}"


def closest(word: str, known: Iterable[str]) -> str:
    """Return the known word that ``word`` may be a misspelling of, in upper or lower case; empty if none is close."""
    by_simple = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), by_simple, 1, cutoff=_CLOSE)
    return by_simple[near[0]] if near else ""


def quoted(text: str) -> str:
    return f'"{text}"'


def type_name(value: JSONValue) -> str:
    """Return the name of a value's type in JSON with an article, without the value, which may be secret."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case str():
            return "text"
        case int() | float():
            return "a number"
        case _:
            return described(value)


def type_of(value: JSONValue) -> str:
    """Return the type of a value of a rule; short texts and numbers with their value."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value) if len(value) <= _LONGEST_SHOWN else "a long text"
        case int() | float():
            return f"the number {value}"
        case _:
            return type_name(value)


def structural_mistakes(value: JSONValue, schema: JSONObject, key: FieldKey = ()) -> Iterator[tuple[FieldKey, str]]:
    """Yield the place and the text of each mistake."""
    expected = _wrong_type(value, schema)
    if expected:
        yield key, f"expected {expected}, got {type_of(value)}"
    elif isinstance(value, dict):
        yield from _mapping_mistakes(value, schema, key)
    elif isinstance(value, list):
        yield from _list_mistakes(value, schema, key)
    else:
        yield from ((key, text) for text in _scalar_mistakes(value, schema, key))


def _wrong_type(value: JSONValue, schema: JSONObject) -> str:
    """Return what the schema expects if the value has another type, else an empty text."""
    name = schema.get("type")
    if name is None:
        return ""
    shown, types = _TYPES[name]
    fits = isinstance(value, types) and (name == "boolean" or not isinstance(value, bool))
    if fits:
        return ""
    if name == "object" and "additionalProperties" in schema and "properties" not in schema:
        return "a mapping of path to value" if schema["title"] == "Set fields" else shown
    return shown


def _mapping_mistakes(value: JSONObject, schema: JSONObject, key: FieldKey) -> Iterator[tuple[FieldKey, str]]:
    properties: JSONObject = schema.get("properties", {})
    rest: Any = schema.get("additionalProperties", True)
    for name in value:
        if name not in properties and rest is False:
            yield (*key, name), f"unknown field{suggestion(name, list(properties))}"
    for name in schema.get("required", ()):
        if name not in value:
            yield key, f"{name} is missing{_example(properties[name])}"
    known = [name for name in value if name in properties]
    if schema.get("maxProperties") == 1 and len(known) != 1 and len(value) == len(known):
        got = " and ".join(known) if known else "none"
        yield key, f"expected exactly one action of {', '.join(properties)}, got {got}"
    elif not value and schema.get("minProperties"):
        yield key, f"expected at least one field{_example(schema)}"
    for name, member in value.items():
        inner = properties.get(name, rest)
        if isinstance(inner, dict):
            yield from structural_mistakes(member, inner, (*key, name))


def _list_mistakes(value: list[JSONValue], schema: JSONObject, key: FieldKey) -> Iterator[tuple[FieldKey, str]]:
    if len(value) < schema.get("minItems", 0):
        noun = "entry" if key and key[-1] == "match" else "item"
        yield key, f"{key[-1] if key else 'the list'} needs at least one {noun}{_example(schema)}"
    for index, item in enumerate(value if "items" in schema else ()):
        yield from structural_mistakes(item, schema["items"], (*key, index))


def _scalar_mistakes(value: Any, schema: JSONObject, key: FieldKey) -> Iterator[str]:
    name = next((part for part in reversed(key) if isinstance(part, str)), "")
    if "const" in schema and value != schema["const"]:
        expected = schema["const"]
        yield f"expected {'true' if expected is True else quoted(expected)}, got {type_of(value)}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{type_of(value)} is not a known value{suggestion(value, schema['enum'])}"
    elif isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            yield f"expected text that is not empty{_example(schema)}"
        elif len(value) > schema.get("maxLength", math.inf):
            yield f"expected at most {schema['maxLength']} characters, got {len(value)}"
        elif "pattern" in schema and not re.search(_whole(schema["pattern"]), value):
            yield f"expected {_EXPECTED[name]}, got {type_of(value)}"
    elif isinstance(value, int | float) and not isinstance(value, bool) and not _in_range(value, schema):
        low = f"more than {schema['exclusiveMinimum']}" if "exclusiveMinimum" in schema else f"at least {schema.get('minimum')}"
        yield f"expected a number of {low} and at most {schema.get('maximum')}, got {value}"


def _in_range(value: float, schema: JSONObject) -> bool:
    # Not a number is in no range.
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    return bool(low <= value <= high and value > schema.get("exclusiveMinimum", -math.inf))


def _whole(pattern: str) -> str:
    # Python's $ also matches before a line feed at the end; that of JSON Schema does not.
    return pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern


def _example(schema: JSONObject) -> str:
    """Return ``, such as VALUE`` for a schema with an example or a constant."""
    value = schema.get("const", schema.get("examples", [None])[0])
    return f", such as {value}" if isinstance(value, str) else ""
