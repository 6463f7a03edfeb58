"""Parses literals: numbers, texts and byte strings. Source: the CEL specification, "Values"; messages are cel-go's."""

from __future__ import annotations

import re
from typing import Final

_ESCAPE: Final = re.compile(
    r"\\(?:(?P<plain>[abfnrtv\\'\"`?])|(?P<octal>[0-3][0-7]{2})|[xX](?P<byte>[0-9a-fA-F]{2})|u(?P<u4>[0-9a-fA-F]{4})|U(?P<u8>[0-9a-fA-F]{8}))"
)
_PLAIN: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
#: Python's limit of digits for int(); no 64-bit integer has more.
_MOST_DIGITS: Final = 4000
_LAST_POINT: Final = 0x10FFFF


def text_of(literal: str) -> str:
    """
    Raises:
        ValueError: an escape stands for no character.
    """
    content, raw = _content(literal)
    return content if raw else _ESCAPE.sub(_character, content)


def bytes_of(literal: str) -> bytes:
    """Parse a byte literal without its ``b``; characters are written in UTF-8, escapes stand for bytes.

    Raises:
        ValueError: an escape stands for no byte.
    """
    content, raw = _content(literal)
    if raw:
        return content.encode()
    out = bytearray()
    at = 0
    for found in _ESCAPE.finditer(content):
        out += content[at : found.start()].encode()
        at = found.end()
        if found["u4"] or found["u8"]:
            raise ValueError("unable to unescape string")
        if found["plain"]:
            out += _PLAIN.get(found["plain"], found["plain"]).encode()
        else:
            out.append(_number(found))
    out += content[at:].encode()
    return bytes(out)


def _content(literal: str) -> tuple[str, bool]:
    literal = literal.replace("\r\n", "\n").replace("\r", "\n")
    raw = literal[0] in "rR"
    literal = literal[raw:]
    quotes = 3 if len(literal) >= 6 and literal[:3] in ("'''", '"""') else 1
    return literal[quotes:-quotes], raw


def _character(found: re.Match[str]) -> str:
    if found["plain"]:
        return _PLAIN.get(found["plain"], found["plain"])
    number = _number(found)
    if number > _LAST_POINT or 0xD800 <= number <= 0xDFFF:
        raise ValueError("invalid unicode code point")
    return chr(number)


def _number(found: re.Match[str]) -> int:
    if found["octal"]:
        return int(found["octal"], 8)
    return int(found["byte"] or found["u4"] or found["u8"], 16)


def integer_of(text: str, minimum: int, maximum: int) -> int:
    """
    Raises:
        ValueError: the number is not between ``minimum`` and ``maximum``.
    """
    sign = -1 if text.startswith("-") else 1
    digits = text.removeprefix("-")
    if len(digits) > _MOST_DIGITS:
        raise ValueError(text)
    number = sign * int(digits, base=16 if digits.startswith("0x") else 10)
    if not minimum <= number <= maximum:
        raise ValueError(text)
    return number


def double_of(text: str) -> float:
    """
    Raises:
        ValueError: the number is too large.
    """
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(text)
    return number
