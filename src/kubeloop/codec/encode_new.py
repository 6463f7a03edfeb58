"""Encodes values that have no document: the models' fields without defaults, MicroTimes with six digits."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from kubeloop.codec.shape import Shape, ValueForm, fields_of
from kubeloop.meta.quantity import Quantity
from kubeloop.meta.time import format_micro_time


def write(value: Any, shape: Shape) -> bytes:
    """Return the JSON of a value of a known shape."""
    return _ENCODER.encode(_timed(value, shape) if shape.micro else value)


def write_struct(obj: msgspec.Struct) -> bytes:
    return _ENCODER.encode(_fields(obj) if fields_of(type(obj)).micro else obj)


def _hook(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    raise TypeError(f"a field holds a {type(value).__name__}, which JSON cannot say")


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
    """Return the fields that msgspec would write, one level at a time where a MicroTime may be inside."""
    written: dict[str, Any] = msgspec.json.decode(_ENCODER.encode(obj), type=dict[str, msgspec.Raw])
    for wire, field in fields_of(type(obj)).by_wire.items():
        if field.shape.micro and wire in written:
            written[wire] = _timed(getattr(obj, field.name), field.shape)
    return written
