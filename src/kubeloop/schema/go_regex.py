"""Translates regular expressions from Go's syntax (RE2) to Python's. ``patterns`` runs them in linear time.

Patterns of CRD schemas are Go's. A pattern that RE2 refuses is refused here, in Go's words.
Source: https://github.com/google/re2/wiki/Syntax, Go regexp/syntax.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache
from typing import Final

_REPEAT_LIMIT: Final = 1000
_POSIX: Final = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_PERL: Final = {"d": "0-9", "s": r"\t\n\f\r ", "w": "0-9A-Za-z_"}
_INVERTED: Final = {
    "d": r"\x00-/:-\U0010FFFF",
    "s": r"\x00-\x08\x0B\x0E-\x1F!-\U0010FFFF",
    "w": r"\x00-/:-@\[-\^`{-\U0010FFFF",
}
_PLAIN_ESCAPES: Final = {"a": r"\x07", "f": r"\f", "n": r"\n", "r": r"\r", "t": r"\t", "v": r"\v"}
_SCRIPTS: Final = {"Greek": "GREEK", "Latin": "LATIN", "Cyrillic": "CYRILLIC", "Han": "CJK", "Hiragana": "HIRAGANA", "Katakana": "KATAKANA"}


class PatternError(ValueError):
    """Go would not compile the pattern. The message is that of Go."""

    def __init__(self, description: str, piece: str = "") -> None:
        super().__init__(f"error parsing regexp: {description}: `{piece}`")


def compile_go(pattern: str) -> re.Pattern[str]:
    """Return a Python pattern whose ``search`` finds the same matches as Go's ``regexp.MustCompile(pattern)``.

    Raises:
        PatternError: The pattern is not in Go's syntax.
    """
    translated = _Translator(pattern).run()
    try:
        return re.compile(translated)
    except (re.error, OverflowError) as exc:
        raise PatternError(f"invalid pattern ({exc})", pattern) from exc


class _Translator:
    """Translates one pattern; ``at`` is the index of the next character, ``out`` the translated pieces."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.out: list[str] = []
        #: Active flags, saved at each group.
        self.flags = ""
        self.groups: list[tuple[str, int]] = []
        #: Open scoped-flag groups, which Python needs where Go sets flags in the middle of a group.
        self.opened = 0

    def run(self) -> str:
        #: Whether a repeatable item precedes.
        atom = False
        while self.at < len(self.pattern):
            character = self.pattern[self.at]
            start = self.at
            if character in "*+?":
                atom = self._repeat(atom, character)
            elif character == "{" and (match := re.compile(r"\{(\d+)(,(\d*))?\}").match(self.pattern, self.at)):
                atom = self._counted(atom, match)
            elif character == "(":
                atom = self._open()
            elif character == ")":
                self._close()
                atom = True
            elif character == "|":
                self.out.append(")" * self.opened + "|" + self._reopen())
                self.at += 1
                atom = False
            elif character == "[":
                self.out.append(self._class())
                atom = True
            elif character == "\\":
                self.out.append(self._escape())
                atom = self.pattern[start + 1 : start + 2] not in "AzbB"
            else:
                self.at += 1
                self.out.append(self._literal(character))
                atom = True
        if self.groups:
            raise PatternError("missing closing )", self.pattern)
        return "".join(self.out) + ")" * self.opened

    def _literal(self, character: str) -> str:
        match character:
            case "^":
                return "^" if "m" in self.flags else r"\A"
            case "$":
                return r"(?=\n|\Z)" if "m" in self.flags else r"\Z"
            case ".":
                return r"[\s\S]" if "s" in self.flags else r"[^\n]"
            case _:
                return re.escape(character)

    def _reopen(self) -> str:
        if self.opened:
            self.opened = 1
            return f"(?{_inline(self.flags)}:"
        return ""

    def _repeat(self, atom: bool, character: str) -> bool:
        if not atom:
            before = self.at - 1
            if before >= 0 and self.pattern[before] in "*+?}":
                raise PatternError("invalid nested repetition operator", self.pattern[before : self.at + 1])
            raise PatternError("missing argument to repetition operator", character)
        self.at += 1
        self._finish_repeat(character)
        return False

    def _counted(self, atom: bool, match: re.Match[str]) -> bool:
        least = int(match[1])
        most = int(match[3]) if match[3] else least if match[2] is None else -1
        if least > _REPEAT_LIMIT or most > _REPEAT_LIMIT or 0 <= most < least:
            raise PatternError("invalid repeat count", match[0])
        if not atom:
            raise PatternError("missing argument to repetition operator", match[0])
        self.at = match.end()
        self._finish_repeat(match[0])
        return False

    def _finish_repeat(self, operator: str) -> None:
        lazy = self.pattern[self.at : self.at + 1] == "?"
        self.at += lazy
        if self.pattern[self.at : self.at + 1] in ("*", "+", "?") or re.compile(r"\{\d+(,\d*)?\}").match(self.pattern, self.at):
            following = (
                self.pattern[self.at] if self.pattern[self.at] != "{" else self.pattern[self.at : self.pattern.index("}", self.at) + 1]
            )
            raise PatternError("invalid nested repetition operator", operator + ("?" if lazy else "") + following)
        swapped = "U" in self.flags
        self.out.append(operator + ("?" if lazy != swapped else ""))

    def _open(self) -> bool:
        rest = self.pattern[self.at :]
        self.groups.append((self.flags, self.opened))
        if not rest.startswith("(?"):
            self.opened = 0
            self.out.append("(")
            self.at += 1
            return False
        if named := re.match(r"\(\?P?<([A-Za-z_0-9]*)>", rest):
            name = named[1]
            if not name:
                raise PatternError("invalid named capture", named[0])
            self.opened = 0
            self.out.append("(")
            self.at += named.end()
            return False
        flags = re.match(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])", rest)
        if not flags:
            if rest.startswith(("(?<", "(?P<")):
                raise PatternError("invalid named capture", rest[: rest.find(">") + 1] or rest)
            end = 4 if rest.startswith("(?P") else 3
            raise PatternError("invalid or unsupported Perl syntax", rest[:end])
        self.flags = "".join(sorted((set(self.flags) | set(flags[1])) - set(flags[2] or "")))
        self.at += flags.end()
        scoped = f"(?{_inline(self.flags)}:"
        if flags[3] == ":":
            self.opened = 0
            self.out.append(scoped)
        else:
            _, before = self.groups.pop()
            self.opened = before + 1
            self.out.append(scoped)
        return False

    def _close(self) -> None:
        if not self.groups:
            raise PatternError("unexpected )", self.pattern)
        self.at += 1
        self.out.append(")" * self.opened + ")")
        self.flags, self.opened = self.groups.pop()

    def _escape(self) -> str:
        kind = self.pattern[self.at + 1 : self.at + 2]
        if not kind:
            raise PatternError("trailing backslash at end of expression")
        if kind in "Az":
            self.at += 2
            return r"\A" if kind == "A" else r"\Z"
        if kind in "bB":
            self.at += 2
            return f"(?a:\\{kind})"
        if kind == "Q":
            end = self.pattern.find("\\E", self.at + 2)
            text = self.pattern[self.at + 2 : end if end >= 0 else None]
            self.at = end + 2 if end >= 0 else len(self.pattern)
            return re.escape(text)
        inside = self._set_escape()
        return f"[{inside}]"

    def _set_escape(self) -> str:
        """Translate an escape within the brackets of a Python class."""
        kind = self.pattern[self.at + 1 : self.at + 2]
        rest = self.pattern[self.at :]
        if kind.lower() in _PERL and kind:
            self.at += 2
            return _PERL[kind] if kind.islower() else _INVERTED[kind.lower()]
        if kind in ("p", "P"):
            return self._unicode()
        if kind in _PLAIN_ESCAPES and kind:
            self.at += 2
            return _PLAIN_ESCAPES[kind]
        if number := re.match(r"\\x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))", rest):
            self.at += number.end()
            return _code(int(number[1] or number[2], 16), number[0])
        if number := re.match(r"\\([1-7][0-7]{1,2}|0[0-7]{0,2})", rest):
            self.at += number.end()
            return _code(int(number[1], 8), number[0])
        if kind.isascii() and not kind.isalnum() and kind:
            self.at += 2
            return re.escape(kind) if kind != "_" else "_"
        raise PatternError("invalid escape sequence", rest[:2])

    def _unicode(self) -> str:
        match = re.compile(r"\\([pP])(?:\{(\^?)([^}]*)\}|(.))", re.DOTALL).match(self.pattern, self.at)
        if not match:
            raise PatternError("invalid character class range", self.pattern[self.at :])
        self.at = match.end()
        negated = (match[1] == "P") != bool(match[2])
        ranges = _property(match[3] or match[4] or "", negated)
        if ranges is None:
            raise PatternError("invalid character class range", match[0])
        return ranges

    def _class(self) -> str:
        start = self.at
        self.at += 1
        negated = self.pattern[self.at : self.at + 1] == "^"
        self.at += negated
        parts: list[str] = []
        first = True
        while first or self.pattern[self.at : self.at + 1] != "]":
            if self.at >= len(self.pattern):
                raise PatternError("missing closing ]", self.pattern[start:])
            first = False
            if posix := re.compile(r"\[:(\^?)([a-z]+):\]").match(self.pattern, self.at):
                if posix[2] not in _POSIX:
                    raise PatternError("invalid character class range", posix[0])
                self.at = posix.end()
                parts.append(_complement(_POSIX[posix[2]]) if posix[1] else _POSIX[posix[2]])
                continue
            parts.append(self._class_item())
        self.at += 1
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def _class_item(self) -> str:
        begin = self.at
        low, single = self._class_character()
        if not single or self.pattern[self.at : self.at + 1] != "-" or self.pattern[self.at + 1 : self.at + 2] in ("]", ""):
            return low
        self.at += 1
        high, single = self._class_character()
        piece = self.pattern[begin : self.at]
        if not single or _point(high) < _point(low):
            raise PatternError("invalid character class range", piece)
        return f"{low}-{high}"

    def _class_character(self) -> tuple[str, bool]:
        character = self.pattern[self.at : self.at + 1]
        if character != "\\":
            self.at += 1
            return re.escape(character), True
        kind = self.pattern[self.at + 1 : self.at + 2]
        if not kind:
            raise PatternError("trailing backslash at end of expression")
        return self._set_escape(), kind not in "dDsSwWpP"


def _inline(flags: str) -> str:
    """Return Go's flags as inline flags of Python, such as ``i-m``. The translator itself handles ``s`` and ``U``."""
    kept = "".join(flag for flag in flags if flag in "im")
    dropped = "".join(flag for flag in "im" if flag not in kept)
    return kept + (f"-{dropped}" if dropped else "")


def _code(number: int, piece: str) -> str:
    if number > sys.maxunicode:
        raise PatternError("invalid escape sequence", piece)
    return f"\\U{number:08X}"


def _point(item: str) -> int:
    if item.startswith("\\U"):
        return int(item.removeprefix("\\U"), base=16)
    if item in (r"\x07", r"\f", r"\n", r"\r", r"\t", r"\v"):
        return {r"\x07": 7, r"\f": 12, r"\n": 10, r"\r": 13, r"\t": 9, r"\v": 11}[item]
    return ord(item[-1])


@lru_cache(maxsize=64)
def _property(name: str, negated: bool) -> str | None:
    """Return the character ranges of a Unicode category or script; None for an unknown name, or a script that is not in ``_SCRIPTS``."""
    if name == "Any":
        return _ranges([]) if negated else r"\x00-\U0010FFFF"
    categories = {"L", "M", "N", "P", "S", "Z", "C"}
    known = name in categories or (len(name) == 2 and name[0] in categories and name[1].islower())
    script = _SCRIPTS.get(name)
    if not known and script is None:
        return None
    points = [
        point
        for point in range(sys.maxunicode + 1)
        if (unicodedata.category(chr(point)).startswith(name) if script is None else unicodedata.name(chr(point), "").startswith(script))
        != negated
    ]
    return _ranges(points)


def _ranges(points: list[int]) -> str:
    if not points:
        return r"^\x00-\U0010FFFF"
    out: list[str] = []
    low = high = points[0]
    for point in points[1:]:
        if point == high + 1:
            high = point
            continue
        out.append(f"\\U{low:08X}-\\U{high:08X}")
        low = high = point
    out.append(f"\\U{low:08X}-\\U{high:08X}")
    return "".join(out)


def _complement(ranges: str) -> str:
    inside = re.compile(f"[{ranges}]")
    ascii_points = [point for point in range(128) if not inside.match(chr(point))]
    return _ranges(ascii_points) + r"\x80-\U0010FFFF"
