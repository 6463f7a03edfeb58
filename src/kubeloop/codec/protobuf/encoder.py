"""Encodes JSON trees as protobuf messages; fields in the order of their numbers, maps in the order of their keys.

Go also writes the zero values of plain fields that the tree leaves out; here they stay absent, which readers treat as zero. The writer of
a field is chosen once for each message of the table, because every read and watch of a Go client uses it.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from functools import cache
from operator import itemgetter
from typing import Any

from kubeloop.codec.protobuf.decoder import DEEPEST
from kubeloop.codec.protobuf.special import SPECIAL_WRITERS, schema_fields
from kubeloop.codec.protobuf.table import Count, MessageDefinition, MessageField, MessageForm, Scalar
from kubeloop.codec.protobuf.wire import EncodeError, kind_of, varint
from kubeloop.types import JSONObject

#: Encodes a value at the given depth of nested messages. Raises EncodeError, or ValueError and TypeError for JSON that does not fit.
_Write = Callable[[Any, int], bytes]

#: Protobuf has no field for the type of a nested object; Go loses it too.
_TYPE_META = frozenset({"apiVersion", "kind"})
_DOUBLE = struct.Struct("<d")
#: The most frequent sizes, encoded in advance.
_SIZES = tuple(varint(size) for size in range(2048))
_number_of = itemgetter(0)


def write_message(message: MessageDefinition, value: Any, depth: int = 0) -> bytes:
    """Encode a message from its JSON.

    Raises:
        EncodeError: The JSON has an unknown field, or a value of another type; the message names message and field.
    """
    return _writer(message)(value, depth)


@cache
def _writer(message: MessageDefinition) -> _Write:
    if message.is_object:
        return lambda value, depth: _write_fields(message, value, depth)
    special = SPECIAL_WRITERS.get(message.form)
    if special is not None:
        return lambda value, _: special(value)
    if message.form == MessageForm.LIST:
        return lambda value, depth: _write_fields(message, {"items": value}, depth)
    return lambda value, depth: _write_fields(message, schema_fields(message.form, value), depth)


@cache
def _fields(message: MessageDefinition) -> dict[str, tuple[int, _Write | None, MessageField]]:
    """Return the number, the writer and the definition of each field by JSON name; None as writer for fields of an inlined message."""
    return {
        name: (field.number, None if field.count == Count.INLINE else _field_writer(field), field)
        for name, field in message.by_name.items()
    }


def _write_fields(message: MessageDefinition, tree: Any, depth: int) -> bytes:
    if depth > DEEPEST:
        raise EncodeError(f"{message.name}: messages nest more than {DEEPEST} deep")
    if not isinstance(tree, dict):
        raise EncodeError(f"expected an object, not {kind_of(tree)}")
    known = _fields(message)
    parts: list[tuple[int, bytes]] = []
    inlined: dict[int, tuple[MessageField, JSONObject]] = {}
    for name, value in tree.items():
        if value is None:
            continue
        found = known.get(name)
        if found is None:
            if name in _TYPE_META:
                continue
            raise EncodeError(f'{message.name}: unknown field "{name}"')
        number, write, field = found
        if write is None:
            inlined.setdefault(number, (field, {}))[1][name] = value
            continue
        try:
            parts.append((number, write(value, depth)))
        except _Placed:
            raise
        except (ValueError, TypeError, AttributeError) as fault:
            raise _Placed(f"{message.name}.{name}: {fault}") from None
    for field, inner in inlined.values():
        assert field.message is not None
        parts.append((field.number, _with_length(varint(field.key), _write_fields(field.message, inner, depth))))
    if len(parts) > 1:
        parts.sort(key=_number_of)
    return b"".join([part for _, part in parts])


class _Placed(EncodeError):
    """An error whose text names message and field already."""


def _field_writer(field: MessageField) -> _Write:
    one = _one_writer(field)
    if field.count == Count.ONE:
        return one
    if field.count == Count.REPEATED:

        def write_list(value: Any, depth: int) -> bytes:
            if not isinstance(value, list):
                raise EncodeError(f"expected a list, not {kind_of(value)}")
            return b"".join([one(each, depth) for each in value])

        return write_list
    key, content = varint(field.key), _content_writer(field)

    def write_map(value: Any, depth: int) -> bytes:
        if not isinstance(value, dict):
            raise EncodeError(f"expected a map, not {kind_of(value)}")
        entries = (_with_length(b"\x0a", name.encode()) + _with_length(b"\x12", content(value[name], depth)) for name in sorted(value))
        return b"".join([_with_length(key, entry) for entry in entries])

    return write_map


def _one_writer(field: MessageField) -> _Write:
    key = varint(field.key)
    if field.wire == 2:
        content = _content_writer(field)
        return lambda value, depth: _with_length(key, content(value, depth))
    if field.wire == 0:
        return lambda value, _: key + varint(_integer(field.type, value))

    def write_double(value: Any, _: int) -> bytes:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise EncodeError(f"expected a number, not {kind_of(value)}")
        return key + _DOUBLE.pack(value)

    return write_double


def _content_writer(field: MessageField) -> _Write:
    """Return the function that encodes the content of a field, without its key and length prefix."""
    if field.type == Scalar.STRING:
        return _write_text
    inner = field.message
    if inner is None:
        return lambda value, _: b"" if value is None else base64.b64decode(value, validate=True)
    if inner.is_object:
        # The message is resolved at the first use, because messages refer to one another.
        return lambda value, depth: _write_fields(inner, inner.empty() if value is None else value, depth + 1)
    return lambda value, depth: _writer(inner)(inner.empty() if value is None else value, depth + 1)


def _write_text(value: Any, _: int) -> bytes:
    if not isinstance(value, str):
        raise EncodeError(f"expected a string, not {kind_of(value)}")
    return value.encode()


def _with_length(key: bytes, content: bytes) -> bytes:
    size = len(content)
    return key + (_SIZES[size] if size < 2048 else varint(size)) + content


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
