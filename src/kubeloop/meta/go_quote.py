"""Quotes text as Go's ``%q``, as Kubernetes quotes names and values in its messages."""

from __future__ import annotations

import re
from typing import Final

_SHORT: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip

_LONG: Final = {short[1]: plain for plain, short in _SHORT.items()}
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))")


def go_quoted(text: str) -> str:
    """Return the text in double quotes with unprintable characters escaped. Source: Go strconv.Quote."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if short := _SHORT.get(character):
        return short
    if character.isprintable():
        return character
    point = ord(character)
    if point < 0x80:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def go_unquoted(quoted: str) -> str:
    """Return the text that ``go_quoted`` quoted."""
    return _ESCAPE.sub(_unescaped, quoted[1:-1])


def _unescaped(escape: re.Match[str]) -> str:
    point = escape[1] or escape[2] or escape[3]
    return chr(int(point, 16)) if point else _LONG[escape[4]]
