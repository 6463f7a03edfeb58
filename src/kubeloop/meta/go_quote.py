"""Text as Go's ``%q`` shows it: how Kubernetes quotes names and values in its messages."""

from __future__ import annotations

from typing import Final

_SHORT: Final = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def go_quoted(text: str) -> str:
    """In double quotes; what cannot be printed is escaped. Source: Go strconv.Quote."""
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
