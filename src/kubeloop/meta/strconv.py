"""Text conversions with the results of Go's package strconv: quoted strings and integers."""

from __future__ import annotations

import re
from typing import Final

# Parses integers in untrusted texts: accepts what Go's strconv accepts, and never a number of unbounded size.
#
# Python's ``int`` accepts more (other digits, underscores, spaces) and refuses numbers of thousands of digits with another error.


#: Digits of the longest 64-bit number.
_LONGEST = 20


def is_digits(text: str) -> bool:
    """Return whether the text is one or more of the digits 0 to 9."""
    return text.isascii() and text.isdigit()


def decimal(text: str, *, bits: int = 64, signed: bool = True) -> int | None:
    """Return the number, or None if the text is not a number or does not fit. Source: Go, strconv.ParseInt and ParseUint in base 10."""
    digits = text[1:] if signed and text[:1] in ("+", "-") else text
    if not is_digits(digits) or len(digits.lstrip("0")) > _LONGEST:
        return None
    number = int(digits.lstrip("0") or "0")
    if signed:
        number = -number if text[0] == "-" else number
        return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None
    return number if number < 1 << bits else None


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
