"""From JSON trees to protobuf, one message at a time; fields in the order of their numbers, maps in the order of their keys.

What Go writes without need, zero values of plain fields, is left out: readers take absence for zero.
"""

from __future__ import annotations

import base64
import struct
from typing import Any

from kubeloop.codec.protobuf.reading import DEEPEST
from kubeloop.codec.protobuf.special import SPECIAL_WRITERS, schema_fields
from kubeloop.codec.protobuf.table import Count, Field, Form, Message, Scalar
from kubeloop.codec.protobuf.wire import EncodeError, kind_of, varint

JSONObject = dict[str, Any]

#: Protobuf has no place for what a nested object says it is; Go loses it too.
_TYPE_META = frozenset({"apiVersion", "kind"})
_DOUBLE = struct.Struct("<d")


def write_message(message: Message, value: Any, depth: int = 0) -> bytes:
    """The bytes of a message, from its JSON.

    Raises:
        EncodeError: an unknown field, or a value of another type; the text names message and field.
    """
    if depth > DEEPEST:
        raise EncodeError(f"{message.name}: messages nest more than {DEEPEST} deep")
    if message.is_object:
        return _write_fields(message, value, depth)
    special = SPECIAL_WRITERS.get(message.form)
    if special is not None:
        return special(value)
    fields = {"items": value} if message.form == Form.LIST else schema_fields(message.form, value)
    return _write_fields(message, fields, depth)


def _write_fields(message: Message, tree: Any, depth: int) -> bytes:
    if not isinstance(tree, dict):
        raise EncodeError(f"expected an object, not {kind_of(tree)}")
    known = message.by_name
    parts: list[tuple[int, bytes]] = []
    inlined: dict[int, tuple[Field, JSONObject]] = {}
    for name, value in tree.items():
        if value is None:
            continue
        field = known.get(name)
        if field is None:
            if name in _TYPE_META:
                continue
            raise EncodeError(f'{message.name}: unknown field "{name}"')
        if field.count == Count.INLINE:
            inlined.setdefault(field.number, (field, {}))[1][name] = value
            continue
        try:
            parts.append((field.number, _write_field(field, value, depth)))
        except _Placed:
            raise
        except (ValueError, TypeError, AttributeError) as fault:
            raise _Placed(f"{message.name}.{name}: {fault}") from None
    for field, inner in inlined.values():
        assert field.message is not None
        parts.append((field.number, _with_length(field.key, _write_fields(field.message, inner, depth))))
    parts.sort(key=_number_of)
    return b"".join([part for _, part in parts])


class _Placed(EncodeError):
    """Names message and field already."""


def _number_of(part: tuple[int, bytes]) -> int:
    return part[0]


def _write_field(field: Field, value: Any, depth: int) -> bytes:
    if field.count == Count.ONE:
        return _write_one(field, value, depth)
    if field.count == Count.REPEATED:
        if not isinstance(value, list):
            raise EncodeError(f"expected a list, not {kind_of(value)}")
        return b"".join([_write_one(field, one, depth) for one in value])
    if not isinstance(value, dict):
        raise EncodeError(f"expected a map, not {kind_of(value)}")
    out = []
    for name in sorted(value):
        entry = _with_length(0x0A, name.encode()) + _with_length(0x12, _content(field, value[name], depth))
        out.append(_with_length(field.key, entry))
    return b"".join(out)


def _write_one(field: Field, value: Any, depth: int) -> bytes:
    match field.wire:
        case 2:
            return _with_length(field.key, _content(field, value, depth))
        case 0:
            return varint(field.key) + varint(_integer(field.type, value))
        case _:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise EncodeError(f"expected a number, not {kind_of(value)}")
            return varint(field.key) + _DOUBLE.pack(value)


def _content(field: Field, value: Any, depth: int) -> bytes:
    """What comes with a length."""
    if field.type == Scalar.STRING:
        if not isinstance(value, str):
            raise EncodeError(f"expected a string, not {kind_of(value)}")
        return value.encode()
    if field.message is not None:
        if value is None:
            value = field.message.empty()
        return write_message(field.message, value, depth + 1)
    return b"" if value is None else base64.b64decode(value, validate=True)


def _with_length(key: int, content: bytes) -> bytes:
    size = len(content)
    if key < 128 and size < 128:
        return bytes((key, size)) + content
    return varint(key) + varint(size) + content


def _integer(kind: int, value: Any) -> int:
    if kind == Scalar.BOOL:
        if not isinstance(value, bool):
            raise EncodeError(f"expected true or false, not {kind_of(value)}")
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise EncodeError(f"expected a whole number, not {kind_of(value)}")
    bits = 31 if kind == Scalar.INT32 else 63
    if not -(1 << bits) <= value < 1 << bits:
        raise EncodeError(f"{value} does not fit into {bits + 1} bits")
    return value
