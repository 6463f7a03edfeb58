"""Losslessness: carries the difference between two typed values over to the JSON that the first was read from.

Only what differs is opened; everything else keeps its bytes: unknown fields, explicit nulls, the spelling of numbers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubeloop.codec import fresh
from kubeloop.codec.alignment import align
from kubeloop.codec.shape import Form, Shape, fields_of

Raw = msgspec.Raw

_NULL = Raw(b"null")
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])


def change_struct(raw: bytes | Raw, old: msgspec.Struct, new: msgspec.Struct) -> bytes:
    """The JSON ``raw``, of which ``old`` was read, with what ``new`` has different.

    A field that became None is removed; one that became empty is written as empty, if it was there.
    A struct assigned anew keeps the unknown fields of the one in its place; a struct removed takes them along.
    """
    try:
        parts = _OBJECT.decode(raw)
    except msgspec.ValidationError:
        parts = {}  # null: the empty value was read
    for wire, field in fields_of(type(new)).by_wire.items():
        before, after = getattr(old, field.name), getattr(new, field.name)
        if _same(before, after, field.shape):
            continue
        if after is None and field.shape.type is not Any:
            parts.pop(wire, None)
        else:
            parts[wire] = Raw(_change(parts.get(wire, _NULL), before, after, field.shape, field.keys))
    return msgspec.json.encode(parts)


def change_tree(raw: bytes | Raw, old: Any, new: Any) -> bytes:
    """The same for plain trees: unchanged parts keep their spelling."""
    return _change(raw, old, new, _ANY)


_ANY = Shape(Form.ANY, Any, loose=True)


def _change(raw: bytes | Raw, old: Any, new: Any, shape: Shape, keys: tuple[str, ...] = ()) -> bytes:
    if old is None or new is None:
        return fresh.write(new, shape)
    if isinstance(new, msgspec.Struct) and type(new) is type(old):
        return change_struct(raw, old, new)
    try:
        if isinstance(new, dict) and isinstance(old, dict):
            return _change_map(raw, old, new, shape.item or _ANY)
        if isinstance(new, list) and isinstance(old, list):
            return _change_list(raw, old, new, shape.item or _ANY, keys)
    except msgspec.ValidationError:
        pass
    return fresh.write(new, shape)


def _change_map(raw: bytes | Raw, old: dict[str, Any], new: dict[str, Any], shape: Shape) -> bytes:
    before = _OBJECT.decode(raw)
    order = [key for key in before if key in new] + [key for key in new if key not in before]
    return msgspec.json.encode({key: _part(before.get(key), old.get(key), new[key], shape, key in old) for key in order})


def _change_list(raw: bytes | Raw, old: list[Any], new: list[Any], shape: Shape, keys: tuple[str, ...]) -> bytes:
    before = _ARRAY.decode(raw)
    if len(before) != len(old):
        return fresh.write(new, Shape(Form.LIST, list, shape, shape.loose, shape.micro))
    matches = align(old, new, keys, lambda one, other: _same(one, other, shape))
    parts = [
        Raw(fresh.write(item, shape)) if match is None else _part(before[match], old[match], item, shape, known=True)
        for item, match in zip(new, matches, strict=True)
    ]
    return msgspec.json.encode(parts)


def _part(raw: Raw | None, old: Any, new: Any, shape: Shape, known: bool) -> Raw:
    if raw is None or not known:
        return Raw(fresh.write(new, shape))
    return raw if _same(old, new, shape) else Raw(_change(raw, old, new, shape))


def _same(old: Any, new: Any, shape: Shape) -> bool:
    """Where Python's equality is too kind (1 == True, 1 == 1.0), what would be written is compared."""
    if not shape.loose:
        return bool(old == new)
    return old is new or fresh.write(old, shape) == fresh.write(new, shape)
