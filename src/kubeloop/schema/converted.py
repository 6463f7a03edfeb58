"""Converts trees as apimachinery does after a strategic merge: from the merged map to the Go type of a built-in kind.

Source: k8s.io/apimachinery pkg/runtime/converter.go (DefaultUnstructuredConverter), with the server's messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from kubeloop.meta.errors import DecodeError
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema import strict
from kubeloop.schema.strict_scalars import cut, decode_base64, fits, is_integer
from kubeloop.schema.strict_types import WireType, wire_types
from kubeloop.types import JSONObject

Convert = Callable[[Any], Any]

#: The integer to which processors convert a float beyond 64 bits.
_NO_INTEGER = -(1 << 63)


def converted(obj: Mapping[str, Any], gvk: GroupVersionKind) -> JSONObject:
    """Return ``obj`` with numbers converted to the types of its fields: a new tree, to be passed to ``strict.conform``.

    Guarantees
        Integers are truncated to the bits of their field, and fractions without a remainder become integers. Unknown fields, nulls and
        empty values stay, because ``conform`` handles them as in any body. The kind is not checked.

    Raises:
        DecodeError: A value has the wrong type; reports the first in the order of the type's fields, in the words of Go's converter.
        KeyError: ``gvk`` is not a built-in kind.
    """
    index = wire_types().kind(gvk)
    if index is None:
        raise KeyError(f"{'/'.join(gvk)} is not a built-in kind")
    result: JSONObject = _converter(index)(obj)
    return result


@cache
def _converter(index: int) -> Convert:
    kind = wire_types().type(index)
    match kind.category:
        case "pointer":
            return lambda value: _converter(kind.element)(value)
        case "struct":
            return _struct(kind)
        case "map":
            return _map(kind)
        case "slice":
            return _slice(kind)
        case "bytes":
            return _bytes
        case "string" | "bool" | "float64":
            return _scalar(kind)
        case category if is_integer(category):
            return _integer(kind)
        case _:
            return _own_reader(index)


def _kind(value: Any) -> str:
    """Return the ``reflect.Kind`` of a value in an unstructured tree."""
    match value:
        case bool():
            return "bool"
        case int():
            # An integer beyond 64 bits was read as a float.
            return "int64" if fits(value, "int64") else "float64"
        case float():
            return "float64"
        case str():
            return "string"
        case dict():
            return "map"
        case _:
            return "slice"


def _struct(kind: WireType) -> Convert:
    fields = tuple((one.name, one.type) for one in kind.fields)

    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise DecodeError(f"cannot restore struct from: {_kind(value)}")
        result = {name: _converter(index)(value[name]) for name, index in fields if value.get(name) is not None}
        return value | result

    return convert


def _map(kind: WireType) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise DecodeError(f"cannot restore map from {_kind(value)}")
        element = _converter(kind.element)
        # Go iterates over a map in any order.
        return {name: element(value[name]) for name in sorted(value)}

    return convert


def _slice(kind: WireType) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise DecodeError(f"cannot restore slice from {_kind(value)}")
        element = _converter(kind.element)
        return [element(one) for one in value]

    return convert


def _bytes(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return decode_base64(value)
        except DecodeError as fault:
            raise DecodeError(f"error decoding from json: {fault}") from None
    if value is not None and not isinstance(value, list):
        raise DecodeError(f"cannot restore slice from {_kind(value)}")
    return None if value is None else [_whole(one, "uint8", "uint8") for one in value]


def _scalar(kind: WireType) -> Convert:
    accepted = {"string": ("string",), "bool": ("bool",), "float64": ("int64", "float64")}[kind.category]

    def convert(value: Any) -> Any:
        if value is None or _kind(value) in accepted:
            return value
        if kind.category == "string" and _kind(value) == "int64":
            # Go converts a number to a text of one letter, JSON does not: hence other words than for a bool.
            raise DecodeError(f"cannot convert int64 to {kind.name}")
        raise DecodeError(f"unrecognized type: {kind.category}")

    return convert


def _integer(kind: WireType) -> Convert:
    return lambda value: _whole(value, kind.category, kind.name)


def _whole(value: Any, category: str, name: str) -> Any:
    if value is None or fits(value, category):
        return value
    met = _kind(value)
    if met == "float64" and not float(value).is_integer():
        raise DecodeError(f"cannot convert float64 to {name}")
    if met not in ("int64", "float64"):
        raise DecodeError(f"unrecognized type: {category}")
    return cut(int(value) if fits(int(value), "int64") else _NO_INTEGER, category)


def _own_reader(index: int) -> Convert:
    """Return the converter of a type with its own JSON decoder (a time, a quantity, a CRD schema). Its errors do not name the field."""

    def convert(value: Any) -> Any:
        strict.read(index, value)
        return value

    return convert
