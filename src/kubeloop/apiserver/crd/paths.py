"""Simple JSON paths (``.spec.replicas``), which configure scale subresources and selectable fields."""

from __future__ import annotations

from typing import Any, Final

from kubeloop.meta.field_error import go_number
from kubeloop.types import JSONObject

#: Marks an absent value; null is a value.
MISSING: Final = object()


class WrongType(ValueError):
    """A value on the path has another type than expected; the message is that of Go's accessors."""


def split(path: str) -> list[str]:
    """Split a path into field names."""
    return path.removeprefix(".").split(".")


def read(obj: JSONObject, path: str) -> Any:
    """Return the value at a path, or ``MISSING``.

    Raises:
        WrongType: A value on the way is not an object.
    """
    value: Any = obj
    steps = split(path)
    for depth, name in enumerate(steps):
        if not isinstance(value, dict):
            if value is None:
                return MISSING
            shown = ".".join(steps[: depth + 1])
            raise WrongType(f".{shown} accessor error: {_shown(value)} is of the type {go_type(value)}, expected map[string]interface{{}}")
        if name not in value:
            return MISSING
        value = value[name]
    return value


def read_number(obj: JSONObject, path: str) -> int | None:
    """Return the integer at a path, or None if it is absent.

    Raises:
        WrongType: The value has another type.
    """
    value = read(obj, path)
    if value is MISSING:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        if -(2**63) <= value < 2**63:
            return value
        value = float(value)  # Go reads a number beyond int64 this way.
    raise WrongType(f"{path} accessor error: {_shown(value)} is of the type {go_type(value)}, expected int64")


def read_text(obj: JSONObject, path: str) -> str | None:
    """Return the string at a path, or None if it is absent.

    Raises:
        WrongType: The value has another type.
    """
    value = read(obj, path)
    if value is MISSING:
        return None
    if isinstance(value, str):
        return value
    raise WrongType(f"{path} accessor error: {_shown(value)} is of the type {go_type(value)}, expected string")


def go_type(value: Any) -> str:
    """Return the name of a value's Go type, for messages."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "bool"
        case int():
            return "int64"
        case float():
            return "float64"
        case str():
            return "string"
        case list():
            return "[]interface {}"
        case _:
            return "map[string]interface {}"


def _shown(value: Any) -> str:
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return str(value).lower()
    return go_number(value) if isinstance(value, int | float) else str(value)
