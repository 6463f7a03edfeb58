"""Decodes protobuf messages into JSON trees, as Go would print them.

Source: protocol buffers' encoding guide (wire types, varints, packed fields, unknown fields are skipped).
"""

from __future__ import annotations

import binascii
import struct
from typing import Any

from kubeloop.codec.protobuf.special import SPECIAL_READERS, schema_choice
from kubeloop.codec.protobuf.table import EMPTY, Count, MessageDefinition, MessageField, MessageForm, Scalar
from kubeloop.codec.protobuf.wire import read_varint, rest_of_varint, signed
from kubeloop.meta.errors import DecodeError
from kubeloop.types import JSONObject

#: Limit of nested messages; CRD schemas nest deepest. Deeper nesting is an attack on the stack.
DEEPEST = 128

_DOUBLE = struct.Struct("<d")
_STRING, _INT32, _INT64, _BOOL, _BYTES = Scalar.STRING, Scalar.INT32, Scalar.INT64, Scalar.BOOL, Scalar.BYTES
_ONE, _REPEATED, _MAP, _INLINE = Count.ONE, Count.REPEATED, Count.MAP, Count.INLINE


def read_message(message: MessageDefinition, data: bytes, at: int, end: int, depth: int = 0, known: Any = None) -> Any:
    """Decode the message in ``data[at:end]``.

    Args:
        message: The definition of the message.
        data: The bytes.
        at: Index of the first byte.
        end: Index after the last byte.
        depth: The number of enclosing messages.
        known: The value of an earlier occurrence of the same field, which this one extends.

    Raises:
        DecodeError: The bytes are truncated, of a wrong wire type, or nested too deeply; the message names message and field.
    """
    if depth > DEEPEST:
        raise DecodeError(f"{message.name}: messages nest more than {DEEPEST} deep")
    if message.is_object:
        return read_fields(message, data, at, end, known if isinstance(known, dict) else {}, depth)
    special = SPECIAL_READERS.get(message.form)
    if special is not None:
        return special(message.name, data[at:end])
    fields = read_fields(message, data, at, end, {}, depth)
    if message.form == MessageForm.LIST:
        return fields.get("items") or []
    return schema_choice(message.form, fields)


def read_fields(message: MessageDefinition, data: bytes, at: int, end: int, tree: JSONObject, depth: int) -> JSONObject:
    """Add the fields in ``data[at:end]`` to ``tree``, and the values that JSON shows for missing fields.

    Args:
        message: The definition of the message.
        data: The bytes.
        at: Index of the first byte.
        end: Index after the last byte.
        tree: Receives the fields.
        depth: The number of enclosing messages.

    Returns:
        ``tree``.

    Raises:
        DecodeError: See ``read_message``.
    """
    fields = message.by_key
    try:
        while at < end:
            key = data[at]
            at += 1
            if key > 127:
                key, at = rest_of_varint(data, at, key)
            field = fields.get(key)
            if field is None:
                at = _other(message, data, at, end, key, tree)
                continue
            kind, count = field.type, field.count
            if key & 7 == 2:
                size = data[at]
                at += 1
                if size > 127:
                    size, at = rest_of_varint(data, at, size)
                stop = at + size
                if stop > end:
                    raise _fault(message, field, "it ends too early")
                if count == _ONE:
                    if kind == _STRING:
                        value: Any = str(data[at:stop], "utf-8", "replace")
                    elif kind >= 0:
                        inner = field.message
                        assert inner is not None
                        value = read_message(inner, data, at, stop, depth + 1, tree.get(field.name))
                    else:
                        value = _base64(data[at:stop])
                    if value or not field.drops_zero:
                        tree[field.name] = value
                elif count == _MAP:
                    name, value = _entry(message, field, data, at, stop, depth)
                    values = tree.get(field.name)
                    if values is None:
                        tree[field.name] = {name: value}
                    else:
                        values[name] = value
                elif count == _INLINE:
                    assert field.message is not None
                    read_fields(field.message, data, at, stop, tree, depth)
                else:
                    if kind == _STRING:
                        value = str(data[at:stop], "utf-8", "replace")
                    elif kind >= 0:
                        inner = field.message
                        assert inner is not None
                        value = read_message(inner, data, at, stop, depth + 1)
                    else:
                        value = _base64(data[at:stop])
                    found = tree.get(field.name)
                    if found is None:
                        tree[field.name] = [value]
                    else:
                        found.append(value)
                at = stop
                continue
            if key & 7 == 0:
                number = data[at]
                at += 1
                if number > 127:
                    number, at = rest_of_varint(data, at, number)
                value = _integer(kind, number)
            else:
                if at + 8 > end:
                    raise _fault(message, field, "it ends too early")
                value = _number(_DOUBLE.unpack_from(data, at)[0])
                at += 8
            if count == _REPEATED:
                tree.setdefault(field.name, []).append(value)
            elif value or not field.drops_zero:
                tree[field.name] = value
    except IndexError:
        raise DecodeError(f"{message.name}: unexpected EOF") from None
    if at != end:
        raise DecodeError(f"{message.name}: unexpected EOF")
    for name, make in message.shown:
        if name not in tree:
            tree[name] = make()
    return tree


def _integer(kind: int, number: int) -> Any:
    """Convert a varint to the field's integer type (two's complement)."""
    if kind == _BOOL:
        return number != 0
    return signed(number, 32 if kind == _INT32 else 64)


def _number(value: float) -> float:
    """Convert a whole number to an int, because Go prints it without a fraction.

    Raises:
        DecodeError: The number is infinite or NaN, which JSON cannot express.
    """
    if value != value or value in (float("inf"), float("-inf")):
        raise DecodeError(f"proto: {value} is not a JSON number")
    return int(value) if value.is_integer() else value


def _base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _entry(message: MessageDefinition, field: MessageField, data: bytes, at: int, end: int, depth: int) -> tuple[str, Any]:
    """Decode one entry of a map: key 1, value 2, each of which may be left out."""
    name = ""
    value: Any = None
    while at < end:
        key = data[at]
        at += 1
        if key not in (0x0A, 0x12):
            at = skip(message, data, at, end, key)
            continue
        size = data[at]
        at += 1
        if size > 127:
            size, at = rest_of_varint(data, at, size)
        stop = at + size
        if stop > end:
            raise _fault(message, field, "it ends too early")
        if key == 0x0A:
            name = str(data[at:stop], "utf-8", "replace")
        elif field.type == _STRING:
            value = str(data[at:stop], "utf-8", "replace")
        elif field.message is not None:
            value = read_message(field.message, data, at, stop, depth + 1)
        else:
            value = _base64(data[at:stop])
        at = stop
    if at != end:
        raise _fault(message, field, "it ends too early")
    if value is None:
        value = field.message.empty() if field.message is not None else EMPTY[Scalar(field.type)]
    return name, value


def _other(message: MessageDefinition, data: bytes, at: int, end: int, key: int, tree: JSONObject) -> int:
    """Add a packed list to ``tree``, or skip an unknown field, and return the index after the field.

    Raises:
        DecodeError: The field is known but has another wire type.
    """
    number, wire = key >> 3, key & 7
    if number <= 0:
        raise DecodeError(f"proto: {message.name}: illegal tag {number} (wire type {wire})")
    field = message.by_number.get(number)
    if field is None:
        return skip(message, data, at, end, key)
    if wire != 2 or field.count != _REPEATED or field.type not in (_INT32, _INT64, _BOOL):
        raise _fault(message, field, f"wrong wire type {wire}")
    size, at = read_varint(data, at)
    stop = at + size
    if stop > end:
        raise _fault(message, field, "it ends too early")
    values = tree.setdefault(field.name, [])
    while at < stop:
        number = data[at]
        at += 1
        if number > 127:
            number, at = rest_of_varint(data, at, number)
        values.append(_integer(field.type, number))
    return at


def skip(message: MessageDefinition, data: bytes, at: int, end: int, key: int) -> int:
    """Skip an unknown field. A group is skipped with all fields inside.

    Args:
        message: The definition of the message, for errors.
        data: The bytes.
        at: Index after the field's key.
        end: Index after the message.
        key: The field's number and wire type.

    Returns:
        The index after the field.

    Raises:
        DecodeError: The field is malformed.
        IndexError: The data ends inside the field.
    """
    groups = 0
    while True:
        match key & 7:
            case 0:
                _, at = read_varint(data, at)
            case 1:
                at += 8
            case 2:
                size, at = read_varint(data, at)
                at += size
            case 3:
                groups += 1
            case 4:
                groups -= 1
            case 5:
                at += 4
            case wire:
                raise DecodeError(f"proto: {message.name}: illegal wire type {wire} of field {key >> 3}")
        if groups < 0:
            raise DecodeError(f"proto: {message.name}: wire type end group for a field that is none")
        if at > end:
            raise DecodeError(f"{message.name}: unexpected EOF")
        if not groups:
            return at
        key, at = read_varint(data, at)


def _fault(message: MessageDefinition, field: MessageField, why: str) -> DecodeError:
    return DecodeError(f"proto: {message.name}.{field.name}: {why}")
