"""Lossless writing: carries the difference between two typed values over to the JSON that the first was read from.

Only differing parts are decoded; the rest keeps its bytes: unknown fields, explicit nulls, the spelling of numbers.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from kubeloop.codec.shape import Shape, ValueForm, fields_of
from kubeloop.meta.quantity import Quantity
from kubeloop.meta.time import format_micro_time


def encode_value(value: Any, shape: Shape) -> bytes:
    """Return the JSON of a value of a known shape."""
    return _ENCODER.encode(_timed(value, shape) if shape.micro else value)


def encode_struct(obj: msgspec.Struct) -> bytes:
    return _ENCODER.encode(_fields(obj) if fields_of(type(obj)).micro else obj)


def _hook(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    raise TypeError(f"a field holds a {type(value).__name__}, which JSON cannot represent")


_ENCODER = msgspec.json.Encoder(enc_hook=_hook)


def _timed(value: Any, shape: Shape) -> Any:
    if isinstance(value, datetime):
        return format_micro_time(value)
    if shape.form is ValueForm.STRUCT and isinstance(value, msgspec.Struct):
        return _fields(value)
    if shape.form is ValueForm.LIST and shape.item is not None and isinstance(value, list):
        return [_timed(item, shape.item) for item in value]
    if shape.form is ValueForm.MAP and shape.item is not None and isinstance(value, dict):
        return {key: _timed(item, shape.item) for key, item in value.items()}
    return value


def _fields(obj: msgspec.Struct) -> dict[str, Any]:
    """Return the encoded fields of a struct by wire name; fields that may contain a MicroTime are trees with six digits of a second."""
    written: dict[str, Any] = msgspec.json.decode(_ENCODER.encode(obj), type=dict[str, msgspec.Raw])
    for wire, field in fields_of(type(obj)).by_wire.items():
        if field.shape.micro and wire in written:
            written[wire] = _timed(getattr(obj, field.name), field.shape)
    return written


# Alignment: pairs the items of the old and the new list, so that an item keeps the fields that the models do not know.
#
# Order: equal items first, then items with equal keys, then similar items. An item that resembles no old item is new.


_LIKENESS_LIMIT = 64
"""Likeness is not computed if more than the square of this many pairs of items are unmatched, because each pair is compared."""


def align(old: Sequence[Any], new: Sequence[Any], keys: tuple[str, ...], same: Callable[[Any, Any], bool]) -> list[int | None]:
    """Return for each new item the index of the matching old item; None for an added item.

    Args:
        old: The items before.
        new: The items after.
        keys: Attributes that identify an item; empty if the list has no keys.
        same: Returns whether an old and a new item are equal.
    """
    # An old item matches one new item, except for exact copies: a duplicated item has all fields of the original, unknown ones too.
    if old == new and all(same(before, after) for before, after in zip(old, new, strict=True)):
        return list(range(len(old)))
    found: list[int | None] = [None] * len(new)
    free = dict.fromkeys(range(len(old)))
    _match_equal(old, new, found, free, same)
    if keys:
        _match_keys(old, new, keys, found, free)
    _match_alike(old, new, keys, found, free)
    if not keys and None in found:
        _match_copies(old, new, found)
    return found


def _match_equal(
    old: Sequence[Any], new: Sequence[Any], matches: list[int | None], candidates: dict[int, None], same: Callable[[Any, Any], bool]
) -> None:
    """Match equal items, first at the same index, then in order, so that an unchanged item never matches a different item.

    ``matches`` gets the index of the old item for each new item; matched old items are removed from ``candidates``.
    """
    for index in range(min(len(old), len(new))):
        if same(old[index], new[index]):
            matches[index] = index
            del candidates[index]
    waiting: dict[bytes, deque[int]] = defaultdict(deque)
    for index in candidates:
        waiting[_fingerprint(old[index])].append(index)
    for index, item in enumerate(new):
        if matches[index] is None and (queue := waiting.get(_fingerprint(item))):
            matches[index] = queue.popleft()
            del candidates[matches[index]]  # type: ignore[arg-type]  # just set to an int


def _match_keys(
    old: Sequence[Any], new: Sequence[Any], keys: tuple[str, ...], matches: list[int | None], candidates: dict[int, None]
) -> None:
    waiting: dict[tuple[Any, ...], deque[int]] = defaultdict(deque)
    for index in candidates:
        waiting[_key(old[index], keys)].append(index)
    for index, item in enumerate(new):
        if matches[index] is None and (queue := waiting.get(_key(item, keys))):
            taken = queue.popleft()
            matches[index] = taken
            del candidates[taken]


def _match_alike(
    old: Sequence[Any], new: Sequence[Any], keys: tuple[str, ...], matches: list[int | None], candidates: dict[int, None]
) -> None:
    left = [index for index, match in enumerate(matches) if match is None]
    if not left or not candidates:
        return
    if len(left) * len(candidates) <= _LIKENESS_LIMIT**2:
        scored = sorted(
            ((_likeness(old[before], new[after]), -abs(before - after), -after, -before) for after in left for before in candidates),
            reverse=True,
        )
        for score, _, after, before in scored:
            if score > 0 and matches[-after] is None and -before in candidates:
                matches[-after] = -before
                del candidates[-before]
    if len(old) != len(new):
        return
    for index in left:
        # Same index and nothing in common: an edited item, unless its key changed with everything else.
        if matches[index] is None and index in candidates and not (keys and _says_more(old[index], keys)):
            matches[index] = index
            del candidates[index]


def _match_copies(old: Sequence[Any], new: Sequence[Any], matches: list[int | None]) -> None:
    originals = {_fingerprint(item): index for index, item in enumerate(old)}
    for index, item in enumerate(new):
        if matches[index] is None and _says(item):
            matches[index] = originals.get(_fingerprint(item))


def _fingerprint(item: Any) -> bytes:
    return msgspec.json.encode(item, enc_hook=str, order="sorted")


def _key(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(getattr(item, key) for key in keys)


def _likeness(before: Any, after: Any) -> int:
    """Count the non-empty fields that are the same."""
    if isinstance(before, msgspec.Struct) and type(before) is type(after):
        return sum(1 for name in before.__struct_fields__ if _says(value := getattr(before, name)) and value == getattr(after, name))
    if isinstance(before, dict) and isinstance(after, dict):
        return sum(1 for name, value in before.items() if name in after and after[name] == value)
    return 0


def _says_more(item: Any, keys: tuple[str, ...]) -> bool:
    return any(name not in keys and _says(getattr(item, name)) for name in item.__struct_fields__)


def _says(value: Any) -> bool:
    if isinstance(value, msgspec.Struct):
        return any(_says(getattr(value, name)) for name in value.__struct_fields__)
    return value is not None and value not in ("", 0, [], {})


Raw = msgspec.Raw

_NULL = Raw(b"null")
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])


def change_struct(raw: bytes | Raw, old: msgspec.Struct, new: msgspec.Struct) -> bytes:
    """Return the JSON ``raw``, from which ``old`` was read, with the differences of ``new``.

    A field set to None is removed; a field set to an empty value is written as empty if it was present.
    A struct that replaces another keeps the unknown fields of the replaced one; a removed struct takes its unknown fields along.
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
    """Return the JSON ``raw``, from which the tree ``old`` was read, with the differences of ``new``; unchanged parts keep their bytes."""
    return _change(raw, old, new, _ANY)


_ANY = Shape(ValueForm.ANY, Any, loose=True)


def _change(raw: bytes | Raw, old: Any, new: Any, shape: Shape, keys: tuple[str, ...] = ()) -> bytes:
    if old is None or new is None:
        return encode_value(new, shape)
    if isinstance(new, msgspec.Struct) and type(new) is type(old):
        return change_struct(raw, old, new)
    try:
        if isinstance(new, dict) and isinstance(old, dict):
            return _change_map(raw, old, new, shape.item or _ANY)
        if isinstance(new, list) and isinstance(old, list):
            return _change_list(raw, old, new, shape.item or _ANY, keys)
    except msgspec.ValidationError:
        pass
    return encode_value(new, shape)


def _change_map(raw: bytes | Raw, old: dict[str, Any], new: dict[str, Any], shape: Shape) -> bytes:
    before = _OBJECT.decode(raw)
    order = [key for key in before if key in new] + [key for key in new if key not in before]
    return msgspec.json.encode({key: _part(before.get(key), old.get(key), new[key], shape, key in old) for key in order})


def _change_list(raw: bytes | Raw, old: list[Any], new: list[Any], shape: Shape, keys: tuple[str, ...]) -> bytes:
    before = _ARRAY.decode(raw)
    if len(before) != len(old):
        return encode_value(new, Shape(ValueForm.LIST, list, shape, shape.loose, shape.micro))
    matches = align(old, new, keys, lambda element, other: _same(element, other, shape))
    parts = [
        Raw(encode_value(item, shape)) if match is None else _part(before[match], old[match], item, shape, known=True)
        for item, match in zip(new, matches, strict=True)
    ]
    return msgspec.json.encode(parts)


def _part(raw: Raw | None, old: Any, new: Any, shape: Shape, known: bool) -> Raw:
    if raw is None or not known:
        return Raw(encode_value(new, shape))
    return raw if _same(old, new, shape) else Raw(_change(raw, old, new, shape))


def _same(old: Any, new: Any, shape: Shape) -> bool:
    """Return whether two values are equal; their JSON is compared where Python's equality is too lenient (1 == True, 1 == 1.0)."""
    if not shape.loose:
        return bool(old == new)
    return old is new or encode_value(old, shape) == encode_value(new, shape)
