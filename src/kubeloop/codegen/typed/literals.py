"""Renders JSON values and calls as Python source, in a formatter's style."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

JSON = Any


def literal(value: JSON) -> str:
    """Return source that evaluates to ``value``; texts in double quotes."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text(str(key))}: {literal(one)}" for key, one in value.items()) + "}"
    return "[" + ", ".join(literal(one) for one in value) + "]"


def text(value: str) -> str:
    """Return a string literal in double quotes, or in single ones if that saves escapes; never raw."""
    if '"' in value and "'" not in value:
        inner = json.dumps(value, ensure_ascii=False)[1:-1].replace('\\"', '"')
        return f"'{_printable(inner)}'"
    return f'"{_printable(json.dumps(value, ensure_ascii=False)[1:-1])}"'


def _printable(inner: str) -> str:
    # JSON leaves control characters above 0x7f and separators as they are; Python source should show them.
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in inner)


def call(name: str, *positional: str, **named: JSON) -> str:
    """Return ``name(positional..., key=literal...)``; arguments that are None are left out."""
    said = [*positional, *(f"{key}={literal(value)}" for key, value in named.items() if value is not None)]
    return f"{name}({', '.join(said)})"
