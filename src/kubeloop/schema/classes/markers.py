"""Adds the rules of a marker (``kubeloop.declare``) to a node of a schema."""

from __future__ import annotations

import copy
from typing import Final

import msgspec

from kubeloop.declare import (
    Atomic,
    Default,
    Embedded,
    Enum,
    Format,
    Limits,
    ListMap,
    ListSet,
    Nullable,
    PreserveUnknown,
    Pruned,
    Rule,
    Schema,
)
from kubeloop.meta.errors import ConfigError
from kubeloop.types import JSONObject

_LIMITS: Final = {
    "minimum": "minimum",
    "maximum": "maximum",
    "exclusive_minimum": "exclusiveMinimum",
    "exclusive_maximum": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
}
_LENGTHS: Final = {"array": ("minItems", "maxItems"), "object": ("minProperties", "maxProperties")}
_RULE: Final = {
    "rule": "rule",
    "message": "message",
    "message_expression": "messageExpression",
    "reason": "reason",
    "field_path": "fieldPath",
    "optional_old_self": "optionalOldSelf",
}


def apply(marker: object, node: JSONObject, location: str) -> None:
    """Add the rules of ``marker`` to ``node``.

    Raises:
        ConfigError: The marker does not fit the type of the value; ``location`` names class and field.
    """
    match marker:
        case msgspec.Meta():
            _meta(marker, node)
        case Limits():
            for name, wire in _LIMITS.items():
                value = getattr(marker, name)
                if value is not None and value is not False and value != "":
                    node[wire] = value
        case Format(name=name):
            node["format"] = name
        case Enum(values=values):
            node["enum"] = copy.deepcopy(values)
        case Default(value=value):
            node["default"] = copy.deepcopy(value)
        case Nullable():
            node["nullable"] = True
        case ListMap():
            _only(node, "array", "ListMap", location)
            node["x-kubernetes-list-type"] = "map"
            node["x-kubernetes-list-map-keys"] = list(marker.list_map_keys)
        case ListSet():
            _only(node, "array", "ListSet", location)
            node["x-kubernetes-list-type"] = "set"
        case Atomic():
            if node.get("type") not in ("array", "object"):
                raise ConfigError(f"{location}: Atomic() applies to lists, maps and structs, not of {_what(node)}")
            node["x-kubernetes-list-type" if node["type"] == "array" else "x-kubernetes-map-type"] = "atomic"
        case PreserveUnknown():
            node["x-kubernetes-preserve-unknown-fields"] = True
        case Pruned():
            node.pop("x-kubernetes-preserve-unknown-fields", None)
        case Embedded():
            _only(node, "object", "Embedded", location)
            node["x-kubernetes-embedded-resource"] = True
        case Rule():
            said = {wire: value for name, wire in _RULE.items() if (value := getattr(marker, name)) not in (None, "")}
            node.setdefault("x-kubernetes-validations", []).append(said)
        case Schema(fragment=fragment):
            for key, value in fragment.items():
                if value is None:
                    node.pop(key, None)
                else:
                    node[key] = copy.deepcopy(value)
        case _:
            return


def _meta(meta: msgspec.Meta, node: JSONObject) -> None:
    lower, upper = _LENGTHS.get(node.get("type", ""), ("minLength", "maxLength"))
    said = {
        "minimum": meta.ge if meta.gt is None else meta.gt,
        "maximum": meta.le if meta.lt is None else meta.lt,
        "exclusiveMinimum": True if meta.gt is not None else None,
        "exclusiveMaximum": True if meta.lt is not None else None,
        "multipleOf": meta.multiple_of,
        "pattern": meta.pattern,
        lower: meta.min_length,
        upper: meta.max_length,
        "title": meta.title,
        "description": meta.description,
    }
    node.update({key: value for key, value in said.items() if value is not None})


def _only(node: JSONObject, type_: str, marker: str, location: str) -> None:
    if node.get("type") != type_:
        raise ConfigError(f"{location}: {marker} applies to {'a list' if type_ == 'array' else 'an object'}, not of {_what(node)}")


def _what(node: JSONObject) -> str:
    type_ = node.get("type")
    return f"type {type_}" if type_ else "a value of any type"
