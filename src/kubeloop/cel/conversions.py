"""Converts JSON values to CEL values by their schema: formatted strings become times and bytes; set and map lists compare as such.

Source: k8s.io/apiserver pkg/cel/common/valuesunstructured.go. A value that needs no conversion is used as it is, not copied.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from kubeloop.cel.declared import with_object_meta
from kubeloop.cel.faults import EvalError
from kubeloop.cel.functions.timestamps import parse_date, parse_duration, parse_timestamp
from kubeloop.cel.identifier_escaping import escape
from kubeloop.cel.values import MapList, ObjectFields, SetList, UnknownField
from kubeloop.schema.node import TypeSchema
from kubeloop.schema.structural import ANY_VALUE, NO_OTHER

Convert = Callable[[Any], Any]


def converter(schema: TypeSchema, *, is_root: bool = False) -> Convert | None:
    """Return a function that converts JSON values to CEL values, or None if values of this schema need no conversion. Null stays null.

    The function raises EvalError for a value that the schema does not allow. ``is_root`` says that the schema describes an object with
    apiVersion, kind and metadata.
    """
    convert = _converter(schema, is_root=is_root)
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _converter(schema: TypeSchema, *, is_root: bool = False) -> Convert | None:
    if schema.int_or_string:
        return None
    match schema.type:
        case "array":
            return _list(schema)
        case "object":
            return _object(schema, is_root=is_root or schema.embedded_resource)
        case "string":
            return _FORMATS.get(schema.format)
        case "number":
            return lambda value: float(value) if type(value) is int else value
        case "integer":
            return _whole
        case _:
            return None


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _list(schema: TypeSchema) -> Convert | None:
    inner = converter(schema.items) if schema.items is not None else None

    def items(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise EvalError("invalid data, expected an array for the provided schema with type=array")
        return value if inner is None else [inner(one) for one in value]

    if schema.list_type == "set":
        return lambda value: SetList(items(value))
    if schema.list_type == "map":
        # Upstream looks up escaped keys in items with plain keys: such a key is absent from every item, so all items are alike.
        keys = tuple(key if escape(key) in (key, None) else "" for key in schema.list_map_keys)
        return lambda value: MapList(items(value), keys)
    return None if inner is None else items


def _object(schema: TypeSchema, *, is_root: bool) -> Convert | None:
    if is_root:
        schema = with_object_meta(schema)
    if not schema.properties and schema.values is not None and schema.values is not ANY_VALUE and schema.values is not NO_OTHER:
        return _map(schema.values)
    names = {name: escape(name) or name for name in schema.properties}
    changed = {name: convert for name, below in schema.properties.items() if (convert := converter(below)) is not None}
    if is_root:
        changed["metadata"] = _fields({name: name for name in schema.properties["metadata"].properties}, {})
    nullable = any(below.nullable for below in schema.properties.values())
    escaped = any(name != written for name, written in names.items())
    if not changed and not nullable and not escaped and not schema.preserve_unknown:
        return None
    return _fields(names, changed)


def _fields(names: dict[str, str], changed: dict[str, Convert]) -> Convert:
    """Return the function that converts an object. ``names`` maps each field to its escaped name.

    The object may have other fields; expressions cannot access them.
    """
    kind = dict if all(name == written for name, written in names.items()) else ObjectFields

    def converted(value: Any) -> dict[Any, Any]:
        made: dict[Any, Any] = kind()
        for name, one in _mapping(value).items():
            written = names.get(name)
            if written is None:
                made[UnknownField(name)] = one
            elif one is not None:  # a nullable field that is null is absent to rules
                convert = changed.get(name)
                made[written] = one if convert is None else convert(one)
        return made

    return converted


def _map(values: TypeSchema) -> Convert | None:
    inner = converter(values)
    if inner is None:
        return None
    return lambda value: {name: inner(one) for name, one in _mapping(value).items()}


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise EvalError("invalid data, expected a map for the provided schema with type=object")
    return value


def _text(parse: Callable[[str], Any], description: str) -> Convert:
    def convert(value: Any) -> Any:
        if not isinstance(value, str):
            raise EvalError(f"invalid data, expected string, got {type(value).__name__}")
        try:
            return parse(value)
        except (ValueError, binascii.Error) as exc:
            raise EvalError(f"Invalid {description} {value}: {exc}") from None

    return convert


_FORMATS: dict[str, Convert] = {
    "duration": _text(parse_duration, "duration"),
    "date": _text(parse_date, "date formatted string"),
    "date-time": _text(parse_timestamp, "date-time formatted string"),
    "byte": _text(lambda text: base64.b64decode(text, validate=True), "byte formatted string"),
}
