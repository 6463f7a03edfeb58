"""Simple JSON paths (``.spec.replicas``): what scale subresources and selectable fields are named by."""

from __future__ import annotations

from typing import Any, Final

from kubeloop.meta.field_error import go_number
from kubeloop.types import JSONObject

#: Nothing is there; null is something.
MISSING: Final = object()


class WrongType(ValueError):
    """A step of the path leads through, or to, a value of another type; the text is what Go's accessors say."""


def split(path: str) -> list[str]:
    return path.removeprefix(".").split(".")


def read(obj: JSONObject, path: str) -> Any:
    """The value, or ``MISSING``.

    Raises:
        WrongType: something on the way is not an object.
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
    """A whole number, None when nothing is there.

    Raises:
        WrongType: another type is there.
    """
    value = read(obj, path)
    if value is MISSING:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        if -(2**63) <= value < 2**63:
            return value
        value = float(value)  # as Go reads a number that no int64 holds
    raise WrongType(f"{path} accessor error: {_shown(value)} is of the type {go_type(value)}, expected int64")


def read_text(obj: JSONObject, path: str) -> str | None:
    """A string, None when nothing is there.

    Raises:
        WrongType: another type is there.
    """
    value = read(obj, path)
    if value is MISSING:
        return None
    if isinstance(value, str):
        return value
    raise WrongType(f"{path} accessor error: {_shown(value)} is of the type {go_type(value)}, expected string")


def go_type(value: Any) -> str:
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
