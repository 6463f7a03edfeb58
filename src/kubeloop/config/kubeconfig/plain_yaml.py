"""Reads the plain YAML that kubectl and its like write: maps and lists in blocks, words, quoted text.

Anything else is left to a YAML parser, which takes as long to import as a tenth of the way to the first request. What is read
here is read the same there: a test holds the two together.
"""

from __future__ import annotations

import re
from typing import Any

_DEEPEST = 32
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_./-]*):(?: +(.*))?")
#: A word that can be nothing but text: it begins with a letter, a slash or as an option of a program, and no colon ends it.
_WORD = re.compile(r"(?:-{0,2}[A-Za-z]|/)(?:[A-Za-z0-9_./+=@:,%~?&-]*[A-Za-z0-9_./+=@,%~?&-])?")
_DOUBLE = re.compile(r'"([^"\\]*)"')
_SINGLE = re.compile(r"'([^']*)'")
_EXACT: dict[str, Any] = {"true": True, "false": False, "null": None}
#: What YAML 1.1 takes for booleans and null, however it is written.
_NO_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))


class _NotPlainError(Exception):
    """Not for this reader."""


def read_plain(text: bytes) -> tuple[Any] | None:
    """The tree in a tuple; None if a YAML parser is needed."""
    if not text.isascii() or b"\t" in text or b"\r" in text or b"\x00" in text:
        return None
    lines: list[tuple[int, str]] = []
    for line in text.decode("ascii").split("\n"):
        content = line.strip(" ")
        if content and not content.startswith("#"):
            lines.append((len(line) - len(line.lstrip(" ")), content))
    if not lines:
        return (None,)
    try:
        reader = _Reader(lines)
        tree = reader.block(0, 0)
        return (tree,) if reader.at == len(lines) else None
    except _NotPlainError:
        return None


class _Reader:
    """``at`` is the next line. Each line is its indentation and what stands after it."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self._lines = lines
        self.at = 0

    def block(self, indent: int, depth: int) -> Any:
        """The map or list whose lines begin at ``indent``."""
        if depth > _DEEPEST or self._lines[self.at][0] != indent:
            raise _NotPlainError
        return self._list(indent, depth) if self._is_item(self.at) else self._map(indent, depth)

    def _map(self, indent: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self._indent(self.at) == indent and not self._is_item(self.at):
            key, value = _key(self._lines[self.at][1])
            if key in found:
                raise _NotPlainError
            self.at += 1
            found[key] = self._nested(indent, depth) if value is None else self._scalar(value, indent)
        return found

    def _list(self, indent: int, depth: int) -> list[Any]:
        found: list[Any] = []
        while self._indent(self.at) == indent and self._is_item(self.at):
            rest = self._lines[self.at][1][2:]
            if _KEY.fullmatch(rest):
                # A map that begins behind the dash goes on below its first key.
                self._lines[self.at] = (indent + 2, rest)
                found.append(self.block(indent + 2, depth + 1))
            else:
                self.at += 1
                found.append(self._scalar(rest, indent))
        return found

    def _nested(self, indent: int, depth: int) -> Any:
        """What belongs to a key without a value on its line: a deeper block, or a list, which may stand at the key's own indentation."""
        below = self._indent(self.at)
        if below > indent or (below == indent and self._is_item(self.at)):
            return self.block(below, depth + 1)
        return None

    def _scalar(self, text: str, indent: int) -> Any:
        if self._indent(self.at) > indent:
            raise _NotPlainError  # it goes on in the next line
        return _value(text)

    def _indent(self, at: int) -> int:
        return self._lines[at][0] if at < len(self._lines) else -1

    def _is_item(self, at: int) -> bool:
        return self._lines[at][1].startswith("- ")


def _key(line: str) -> tuple[str, str | None]:
    match = _KEY.fullmatch(line)
    if match is None or match[1].lower() in _NO_WORDS:
        raise _NotPlainError
    return match[1], match[2]


def _value(text: str) -> Any:
    if text in _EXACT:
        return _EXACT[text]
    if text in ("{}", "[]"):
        return {} if text == "{}" else []
    if _WORD.fullmatch(text) and text.lower() not in _NO_WORDS:
        return text
    quoted = _DOUBLE.fullmatch(text) or _SINGLE.fullmatch(text)
    if quoted is None or not quoted[1].isprintable():
        raise _NotPlainError
    return quoted[1]
