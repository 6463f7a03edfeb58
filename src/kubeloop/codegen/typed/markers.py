"""Renders schema rules that a type does not imply, for ``Annotated``: ``msgspec.Meta`` if it fits exactly, else ``declare`` markers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import Any, Final

from kubeloop.codegen.typed.python_text import call, literal, text
from kubeloop.types import JSONObject

_DECLARE: Final = "declare"
#: Wire name -> name in ``Limits``.
_LIMITS: Final = {
    "minimum": "minimum",
    "maximum": "maximum",
    "exclusiveMinimum": "exclusive_minimum",
    "exclusiveMaximum": "exclusive_maximum",
    "multipleOf": "multiple_of",
    "minLength": "min_length",
    "maxLength": "max_length",
    "pattern": "pattern",
    "minItems": "min_items",
    "maxItems": "max_items",
    "minProperties": "min_properties",
    "maxProperties": "max_properties",
}
_FLAGS: Final = {
    "nullable": "Nullable",
    "x-kubernetes-preserve-unknown-fields": "PreserveUnknown",
    "x-kubernetes-embedded-resource": "Embedded",
}
_RULE: Final = {
    "rule": "rule",
    "message": "message",
    "messageExpression": "message_expression",
    "reason": "reason",
    "fieldPath": "field_path",
    "optionalOldSelf": "optional_old_self",
}
_LENGTHS: Final = {"str": ("minLength", "maxLength"), "list": ("minItems", "maxItems"), "dict": ("minProperties", "maxProperties")}
_MOST_KEYS: Final = 4
_INT64: Final = 2**63


def markers(node: JSONObject, derived: JSONObject, type_text: str) -> list[str]:
    """Return the source of the markers that add the rules of the schema ``node`` to a type, which alone has the schema ``derived``.

    ``type_text`` is the source of the type; it decides whether ``msgspec.Meta`` fits.

    Guarantees
        Applied to ``derived`` in order they give exactly ``node``, descriptions aside.
    """
    rest = {key: value for key, value in node.items() if key != "description" and derived.get(key, _NOTHING) != value}
    gone = [key for key in derived if key not in node]
    result = list(_markers(rest, gone, derived, type_text))
    leftover: JSONObject = {**rest, **dict.fromkeys(gone)}
    if leftover:
        result.append(f"{_DECLARE}.Schema({literal(leftover)})")
    return result


_NOTHING: Final = object()


def _markers(rest: JSONObject, gone: list[str], type_keywords: JSONObject, type_text: str) -> Iterator[str]:
    """Yield the source of the markers for the schema keywords that the type does not imply.

    ``rest`` are the keywords that are still to be expressed, ``gone`` the derived keywords that the schema lacks, and ``type_keywords``
    the keywords derived from the type. Expressed keywords are removed from ``rest`` and ``gone``.
    """
    if type_keywords.get("type") == "object" and gone == ["x-kubernetes-preserve-unknown-fields"] and "additionalProperties" not in rest:
        gone.clear()
        yield f"{_DECLARE}.Pruned()"
    if isinstance(rest.get("format"), str):
        yield call(f"{_DECLARE}.Format", text(rest.pop("format")))
    if isinstance(rest.get("enum"), list):
        yield f"{_DECLARE}.Enum({literal(rest.pop('enum'))})"
    meta = _meta(rest, type_text)
    if meta:
        yield meta
    limits = {name: rest.pop(wire) for wire, name in _LIMITS.items() if _is_limit(wire, rest.get(wire))}
    if limits:
        yield call(f"{_DECLARE}.Limits", **limits)
    yield from _list_type(rest, type_keywords)
    if rest.get("x-kubernetes-map-type") == "atomic" and type_keywords.get("type") == "object":
        del rest["x-kubernetes-map-type"]
        yield f"{_DECLARE}.Atomic()"
    for key, name in _FLAGS.items():
        if rest.get(key) is True:
            del rest[key]
            yield f"{_DECLARE}.{name}()"
    if "default" in rest:
        yield f"{_DECLARE}.Default({literal(rest.pop('default'))})"
    rules = rest.get("x-kubernetes-validations")
    if rules and all(set(rule) <= set(_RULE) and rule.get("rule") and all(value != "" for value in rule.values()) for rule in rules):
        for rule in rest.pop("x-kubernetes-validations"):
            named = {_RULE[key]: value for key, value in rule.items() if key != "rule"}
            yield call(f"{_DECLARE}.Rule", text(rule["rule"]), **named)


def _list_type(rest: JSONObject, type_keywords: JSONObject) -> Iterator[str]:
    kind, keys = rest.get("x-kubernetes-list-type"), rest.get("x-kubernetes-list-map-keys")
    if type_keywords.get("type") != "array":
        return
    if kind == "map" and keys and len(keys) <= _MOST_KEYS:
        yield call(f"{_DECLARE}.ListMap", *map(text, keys))
    elif kind in ("set", "atomic") and keys is None:
        yield f"{_DECLARE}.{'ListSet' if kind == 'set' else 'Atomic'}()"
    else:
        return
    del rest["x-kubernetes-list-type"]
    rest.pop("x-kubernetes-list-map-keys", None)


def _meta(rest: JSONObject, type_text: str) -> str:
    """Return ``msgspec.Meta`` for the rules it supports for this type; a number is also checked before it is sent."""
    named: JSONObject = {}
    if type_text in ("int", "float"):
        for wire, strict, lower, upper in (("minimum", "exclusiveMinimum", "ge", "gt"), ("maximum", "exclusiveMaximum", "le", "lt")):
            bound, exclusive = rest.get(wire), rest.get(strict, False)
            if isinstance(exclusive, bool) and _holds(bound, type_text) and (exclusive or strict not in rest):
                named[upper if exclusive else lower] = rest.pop(wire)
                rest.pop(strict, None)
        step = rest.get("multipleOf")
        if step is not None and _holds(step, type_text) and step > 0:
            named["multiple_of"] = rest.pop("multipleOf")
    shortest, longest = _LENGTHS.get(type_text.partition("[")[0], ("", ""))
    for wire, name in ((shortest, "min_length"), (longest, "max_length")):
        if type(rest.get(wire)) is int and 0 <= rest[wire] < _INT64:
            named[name] = rest.pop(wire)
    if type_text == "str" and _is_common(rest.get("pattern")):
        named["pattern"] = rest.pop("pattern")
    return call("msgspec.Meta", **named) if named else ""


def _holds(bound: Any, type_text: str) -> bool:
    if type_text == "int":
        return type(bound) is int and -_INT64 <= bound < _INT64
    # Servers compare whole numbers with fractional bounds in a special way: those bounds are left to the server.
    return type(bound) is int or (type(bound) is float and bound.is_integer())


def _is_limit(wire: str, value: Any) -> bool:
    """Return whether ``Limits`` can express the value of a keyword. A bound or length of 0 is a limit; false or an empty text is none."""
    if wire == "pattern":
        return isinstance(value, str) and bool(value)
    if wire.startswith("exclusive"):
        return value is True
    return type(value) in (int, float)


def _is_common(pattern: Any) -> bool:
    """Return whether a pattern means the same in Python and in Go, judged by its syntax."""
    if not isinstance(pattern, str) or not pattern or "[:" in pattern or "(?" in pattern or r"\C" in pattern or r"\Q" in pattern:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(pattern)
    except (re.error, Warning):
        return False
    return True
