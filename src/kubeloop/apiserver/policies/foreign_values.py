"""Values of expressions that no JSON has, where an object wants a field's: nulls, bytes and moments, as Go shows them.

Source: structured-merge-diff's typed/validate, over the values of cel-go.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from kubeloop.cel.values import Timestamp
from kubeloop.merge.fields import FieldType, TypeMismatch
from kubeloop.merge.fields.field_types import shape

_MONTHS: Final = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"]
_NANOS: Final = 1_000_000_000


def check_foreign(value: Any, type_: FieldType, path: str = "") -> None:
    """
    Raises:
        TypeMismatch: a value at some path is none of JSON's, or null.
    """
    if isinstance(value, dict):
        for name, one in value.items():
            below = None if type_.map is None else type_.map.of(name)
            check_foreign(one, FieldType() if below is None else below, f"{path}.{name}")
    elif isinstance(value, list):
        for at, one in enumerate(value):
            check_foreign(one, FieldType() if type_.list is None else type_.list.items, f"{path}[{at}]")
    elif value is None or isinstance(value, bytes | Timestamp):
        raise TypeMismatch(f"{path}: {_misfit(value, type_)}")


def _misfit(value: Any, type_: FieldType) -> str:
    match shape(type_, None):
        case "map":
            return f"expected map, got &{{{_shown(value)}}}"
        case "list":
            return f"expected list, got &{{{_shown(value)}}}"
    match type_.scalar:
        case "string":
            return f"expected string, got &value.valueUnstructured{{Value:{_syntax(value)}}}"
        case "numeric":
            return f"expected numeric (int or float), got {_type(value)}"
        case "boolean":
            return f"expected boolean, got &{{{_shown(value)}}}"
        case _:
            return f"expected any scalar, got &{{{_shown(value)}}}"


def _type(value: Any) -> str:
    return "structpb.NullValue" if value is None else "[]uint8" if isinstance(value, bytes) else "time.Time"


def _shown(value: Any) -> str:
    """Go's ``%v``."""
    if value is None:
        return "NULL_VALUE"
    if isinstance(value, bytes):
        return f"[{' '.join(map(str, value))}]"
    moment, nanos = _moment(value)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


def _syntax(value: Any) -> str:
    """Go's ``%#v``."""
    if value is None:
        return "0"
    if isinstance(value, bytes):
        return f"[]uint8{{{', '.join(map(hex, value))}}}"
    moment, nanos = _moment(value)
    clock = f"{moment.day}, {moment.hour}, {moment.minute}, {moment.second}, {nanos}"
    return f"time.Date({moment.year}, time.{_MONTHS[moment.month - 1]}, {clock}, time.UTC)"


def _moment(value: Timestamp) -> tuple[datetime, int]:
    seconds, nanos = divmod(value.nanos, _NANOS)
    return datetime.fromtimestamp(seconds, UTC), nanos
