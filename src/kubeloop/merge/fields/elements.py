"""Path elements of field sets, in the form of FieldsV1: ``f:name``, ``k:{"name":"a"}``, ``v:"x"``, ``i:0``.

Equal elements have equal texts, so comparing texts compares elements. Source: KEP-555; Kubernetes API reference, FieldsV1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from kubeloop.merge.go_text import go_text
from kubeloop.meta.strconv import go_quoted

Scalar = str | int | float | bool | None
#: A path from the root down; the empty path is the whole object, which has no owner.
Path = tuple[str, ...]

_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_UNSAFE: Final = re.compile('["\\\\<>&\x00-\x1f\u2028\u2029\ud800-\udfff]')


class ElementError(ValueError):
    """A text is not a path element, or a list item has no key; ``str()`` is Kubernetes' message."""


def field_element(name: str) -> str:
    return "f:" + name


def key_element(fields: Iterable[tuple[str, Any]]) -> str:
    """Return the element of an item of an associative list; ``fields`` is sorted by name."""
    return "k:{" + ",".join(f"{_string(name)}:{json_text(value)}" for name, value in fields) + "}"


def value_element(value: Scalar) -> str:
    return "v:" + json_text(value)


def json_text(value: Any) -> str:
    """Encode JSON in Go's spelling: HTML characters escaped, whole floats without a point."""
    if value.__class__ is str:
        return _string(value)
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_string(name)}:{json_text(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return _string(str(value))


def _string(text: str) -> str:
    return _short(text) if len(text) <= _SHORT else _escaped(text)


def _escaped(text: str) -> str:
    if _UNSAFE.search(text) is None:
        return f'"{text}"'
    return '"' + _UNSAFE.sub(_escape, text) + '"'


#: Every object of a kind repeats the same few keys. Longer texts are rare, and would make the cache heavy.
_SHORT: Final = 64
_short = lru_cache(maxsize=8192)(_escaped)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if "\ud800" <= character <= "\udfff":
        return "\\ufffd"
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"


def _float(value: float) -> str:
    if value and not 1e-6 <= abs(value) < 1e21:
        mantissa, _, exponent = repr(value).partition("e")
        return f"{mantissa}e{int(exponent):+03d}".replace("e-0", "e-")
    text = format(Decimal(repr(value)), "f")
    return text.removesuffix(".0")


@lru_cache(maxsize=8192)
def canonical(element: str) -> str | None:
    """Return the canonical form of a path element that a client wrote, or None for an element of unknown type, which sets leave out.

    Raises:
        ElementError: The text is not a path element.
    """
    kind, content = element[:2], element[2:]
    if len(element) < 2:
        raise ElementError("key must be 2 characters long:")
    if kind[1] != ":":
        raise ElementError(f"missing colon: {element}")
    match kind[0]:
        case "f":
            return element
        case "v":
            return value_element(_scalar(_parse(content), content))
        case "k":
            fields = _parse(content)
            if not isinstance(fields, dict):
                raise ElementError(f"not an object of keys: {content}")
            return key_element((name, _scalar(fields[name], content)) for name in sorted(fields))
        case "i":
            try:
                return f"i:{int(content)}"
            except ValueError:
                raise ElementError(f'strconv.Atoi: parsing "{content}": invalid syntax') from None
        case _:
            return None


def _parse(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise ElementError(f"not JSON: {text}") from None


def _scalar(value: Any, content: str) -> Scalar:
    if isinstance(value, str | int | float | None):
        return value
    raise ElementError(f"not a scalar: {content}")


def _refuse(constant: str) -> None:
    raise ValueError(constant)


@lru_cache(maxsize=8192)
def element_text(element: str, *, stored: bool = False) -> str:
    """Format a path element: ``.image``, ``[name="a"]``, ``[="x"]``, ``[0]``.

    ``stored`` formats numbers as Kubernetes does after reading a FieldsV1.
    """
    content = element[2:]
    match element[0]:
        case "f":
            return "." + content
        case "k":
            return "[" + ",".join(f"{name}={_shown(value, stored)}" for name, value in json.loads(content).items()) + "]"
        case "v":
            return f"[={_shown(json.loads(content), stored)}]"
        case _:
            return f"[{content}]"


def path_text(path: Iterable[str]) -> str:
    """Format a path as conflicts name it: ``.spec.containers[name="a"].image``."""
    return "".join(element_text(element, stored=True) for element in path)


def _shown(value: Any, stored: bool) -> str:
    if isinstance(value, str):
        return go_quoted(value)
    # An applied configuration may have a key of another shape; the message that refuses it names the item.
    if isinstance(value, dict):
        return "".join(f"{name}={_shown(below, stored)}" for name, below in value.items())
    if isinstance(value, list):
        return "[" + ",".join(_shown(below, stored) for below in value) + "]"
    if stored and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1e300:
        # Upstream reads every number of a FieldsV1 as a float.
        return go_text(float(value))
    return "null" if value is None else go_text(value)


@lru_cache(maxsize=8192)
def order(element: str) -> tuple[int, Any]:
    """Return the sort key of a path element: fields, then keys, values and indexes; numbers before strings, strings before booleans."""
    content = element[2:]
    match element[0]:
        case "f":
            return 0, content
        case "k":
            return 1, tuple((name, _value_order(value)) for name, value in json.loads(content).items())
        case "v":
            return 2, _value_order(json.loads(content))
        case _:
            return 3, int(content)


def _value_order(value: Scalar) -> tuple[int, Any]:
    match value:
        case bool():
            return 2, value
        case int() | float():
            return 0, value
        case str():
            return 1, value
        case _:
            return 5, 0
