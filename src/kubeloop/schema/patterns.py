"""Go's regular expressions with the results of Go's ``regexp``, in linear time for every pattern.

Python's ``re`` runs patterns in which at most one character or class repeats; ``LinearPattern`` runs all other patterns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from kubeloop.schema.go_regex import PatternError, compile_go

# Runs regular expressions in time linear in the text, whatever the pattern: all alternatives are followed at once.
#
# For patterns on which Python's backtracking ``re`` may take exponential time. It reads only patterns that ``regular`` translated from Go's
# syntax. Source: R. Cox, "Regular Expression Matching: the Virtual Machine Approach".


#: Maximum steps of a program; a longer pattern takes too much memory (Go and RE2 have similar limits).
MOST_STEPS: Final = 50_000
#: Cache limits: characters per leaf, positions per pattern. Without them a user who chooses pattern and text could fill the memory.
_MOST_CHARACTERS: Final = 256
_MOST_PLACES: Final = 8192
#: The cost of caching a step, besides its positions.
_ENTRY: Final = 8

#: One step of a program: ("char", leaf, next), ("split", [next, ...] by preference, 0), ("assert", assertion, next), ("match", None, 0).
_Step: TypeAlias = tuple[str, object, int]

_QUANTIFIER: Final = re.compile(r"(?:([*+?])|\{(\d+)(,(\d*))?\})(\??)")
_GROUP: Final = re.compile(r"\(\?([aim]*)(?:-([im]+))?:")
_CLASS: Final = re.compile(r"\[\^?(?:\\.|[^\\\]])(?:\\.|[^\\\]])*\]", re.DOTALL)
_ASSERTIONS: Final = {r"\A": "begin", r"\Z": "end", "^": "line", r"(?=\n|\Z)": "line end", r"\b": "word edge", r"\B": "no word edge"}


class TooLarge(ValueError):
    """The expanded pattern is too large to be run."""


@dataclass(slots=True)
class Leaf:
    """One character or class; it caches which characters it matches."""

    pattern: re.Pattern[str]
    known: dict[str, bool] = field(default_factory=dict)

    def takes(self, character: str) -> bool:
        found = self.known.get(character)
        if found is None:
            if len(self.known) >= _MOST_CHARACTERS:
                self.known.clear()
            found = self.known[character] = self.pattern.match(character) is not None
        return found


class LinearPattern:
    """A compiled pattern. Guarantee: the time is at most proportional to the text times the size of the pattern."""

    def __init__(self, translated: str) -> None:
        """Compile a pattern in Python's syntax.

        Raises:
            TooLarge: The pattern is too large.
        """
        self._steps = _Compiler(translated).run()
        self._known: dict[tuple[tuple[int, ...], str, str], tuple[bool, tuple[int, ...]]] = {}
        self._places = 0

    def is_in(self, text: str) -> bool:
        """Return whether the pattern matches anywhere."""
        threads: tuple[int, ...] = ()
        before = ""
        for character in text:
            found, threads = self._advance((*threads, 0), before, character)
            if found:
                return True
            before = character
        return self._advance((*threads, 0), before, "")[0]

    def find(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """Return begin and end of the first match from ``start`` on, the same match that a backtracking matcher prefers."""
        best: tuple[int, int] | None = None
        threads: list[tuple[int, int]] = []
        for at in range(start, len(text) + 1):
            before, character = text[at - 1 : at] if at else "", text[at : at + 1]
            if best is None:
                threads.append((0, at))
            elif not threads:
                break
            following: list[tuple[int, int]] = []
            seen: set[int] = set()
            taken: set[int] = set()
            for thread, began in threads:
                stop = False
                for step in self._closure(thread, before, character, seen):
                    kind, what, after = self._steps[step]
                    if kind == "match":
                        best, stop = (began, at), True
                        break
                    assert isinstance(what, Leaf)
                    if character and after not in taken and what.takes(character):
                        taken.add(after)
                        following.append((after, began))
                if stop:
                    break  # the alternatives after this one are preferred less
            threads = following
        return best

    def _advance(self, threads: tuple[int, ...], before: str, character: str) -> tuple[bool, tuple[int, ...]]:
        """Return whether a match ends before ``character`` (empty: the end of the text), and the positions of all threads after it."""
        key = threads, before, character
        known = self._known.get(key)
        if known is not None:
            return known
        seen: set[int] = set()
        following: dict[int, None] = {}
        found = False
        for thread in threads:
            for step in self._closure(thread, before, character, seen):
                kind, what, after = self._steps[step]
                if kind == "match":
                    found = True
                elif isinstance(what, Leaf) and character and what.takes(character):
                    following[after] = None
        result = found, tuple(sorted(following))
        cost = _ENTRY + len(threads) + len(following)
        if self._places + cost > _MOST_PLACES:
            self._known.clear()
            self._places = 0
        if cost <= _MOST_PLACES:
            self._known[key] = result
            self._places += cost
        return result

    def _closure(self, step: int, before: str, after: str, seen: set[int]) -> list[int]:
        """Return the "char" and "match" steps that are reachable from ``step`` without consuming a character, most preferred first."""
        result: list[int] = []
        left = [step]
        while left:
            one = left.pop()
            if one in seen:
                continue
            seen.add(one)
            kind, what, following = self._steps[one]
            if kind == "split":
                assert isinstance(what, list)
                left.extend(reversed(what))
            elif kind == "assert":
                if _holds(str(what), before, after):
                    left.append(following)
            else:
                result.append(one)
        return result


def _holds(assertion: str, before: str, after: str) -> bool:
    match assertion:
        case "begin":
            return not before
        case "end":
            return not after
        case "line":
            return before in ("", "\n")
        case "line end":
            return after in ("", "\n")
        case _:
            return (_is_word(before) != _is_word(after)) == (assertion == "word edge")


def _is_word(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character == "_")


class _Compiler:
    """Compiles the translated pattern to steps. Pieces are lists of steps with positions relative to their beginning."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.leaves: dict[tuple[str, str], Leaf] = {}

    def run(self) -> list[_Step]:
        steps = self._choice("")
        return [*steps, ("match", None, 0)]

    def _choice(self, flags: str) -> list[_Step]:
        pieces = [self._sequence(flags)]
        while self.text[self.at : self.at + 1] == "|":
            self.at += 1
            pieces.append(self._sequence(flags))
        made = pieces.pop()
        while pieces:
            one = pieces.pop()
            # Try one; after it, jump over the others.
            jump = 1 + len(one) + 1
            made = [("split", [1, jump], 0), *_moved(one, 1), ("split", [jump + len(made)], 0), *_moved(made, jump)]
            self._check(made)
        return made

    def _sequence(self, flags: str) -> list[_Step]:
        made: list[_Step] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            made += _moved(self._repeated(self._atom(flags)), len(made))
            self._check(made)
        return made

    def _repeated(self, piece: list[_Step]) -> list[_Step]:
        match = _QUANTIFIER.match(self.text, self.at)
        if match is None:
            return piece
        self.at = match.end()
        lazy = bool(match[5])
        if match[1]:
            least, most = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}[match[1]]
        else:
            least = int(match[2])
            most = least if match[3] is None else int(match[4]) if match[4] else -1
        if (max(least, most) + 1) * len(piece) > MOST_STEPS:
            raise TooLarge
        made: list[_Step] = []
        for _ in range(least):
            made += _moved(piece, len(made))
        if most < 0:
            here, behind = len(made), len(made) + len(piece) + 2
            made += [("split", _ordered(here + 1, behind, lazy), 0), *_moved(piece, here + 1), ("split", [here], 0)]
        else:
            end = least * len(piece) + (most - least) * (len(piece) + 1)
            for _ in range(most - least):
                made += [("split", _ordered(len(made) + 1, end, lazy), 0), *_moved(piece, len(made) + 1)]
        self._check(made)
        return made

    def _atom(self, flags: str) -> list[_Step]:
        for written, what in _ASSERTIONS.items():
            if self.text.startswith(written, self.at):
                self.at += len(written)
                return [("assert", what, 1)]
        if self.text[self.at] == "(":
            return self._group(flags)
        if self.text[self.at] == "[":
            match = _CLASS.match(self.text, self.at)
            assert match is not None
            leaf = match[0]
        elif self.text[self.at] == "\\":
            leaf = self.text[self.at : self.at + 2]
        else:
            leaf = self.text[self.at]
        self.at += len(leaf)
        key = leaf, flags
        if key not in self.leaves:
            self.leaves[key] = Leaf(re.compile(leaf, re.IGNORECASE if "i" in flags else 0))
        return [("char", self.leaves[key], 1)]

    def _group(self, flags: str) -> list[_Step]:
        if match := _GROUP.match(self.text, self.at):
            self.at = match.end()
            flags = "".join(sorted((set(flags) | set(match[1])) - set(match[2] or "")))
        else:
            self.at += 1
        made = self._choice(flags)
        self.at += 1
        return made

    @staticmethod
    def _check(steps: list[_Step]) -> None:
        if len(steps) > MOST_STEPS:
            raise TooLarge


def _ordered(inside: int, behind: int, lazy: bool) -> list[int]:
    return [behind, inside] if lazy else [inside, behind]


def _moved(steps: list[_Step], by: int) -> list[_Step]:
    if not by:
        return steps
    return [
        (kind, [one + by for one in what] if isinstance(what, list) else what, after + by) if kind != "match" else (kind, what, after)
        for kind, what, after in steps
    ]


_REPEATS: Final = re.compile(r"(?<!\\)(?:\\\\)*[*+{]")
#: Maximum length of a pattern that is cached after compiling.
_LONGEST: Final = 512
_REPEATED_GROUP: Final = re.compile(r"\)[*+{]")


class GoPattern:
    """A compiled regular expression in Go's syntax. Matching takes linear time."""

    __slots__ = ("_linear", "_simple")

    def __init__(self, pattern: str) -> None:
        self._simple = compile_go(pattern)
        self._linear: LinearPattern | None = None
        if len(_REPEATS.findall(pattern)) > 1 or _REPEATED_GROUP.search(pattern):
            try:
                self._linear = LinearPattern(self._simple.pattern)
            except TooLarge:
                raise PatternError("expression too large", pattern) from None

    def is_in(self, text: str) -> bool:
        """Return whether the pattern matches anywhere."""
        return self._simple.search(text) is not None if self._linear is None else self._linear.is_in(text)

    def matches(self, text: str) -> Iterator[str]:
        """Yield all matches. An empty match directly after another match does not count, as in Go."""
        at, end = 0, -1
        while at <= len(text):
            found = self._find(text, at)
            if found is None:
                return
            begin, last_end = found[0], end
            end = found[1]
            if end != at or begin != last_end:
                yield text[begin:end]
            at = end if end != at else at + 1

    def _find(self, text: str, at: int) -> tuple[int, int] | None:
        if self._linear is not None:
            return self._linear.find(text, at)
        match = self._simple.search(text, at)
        return None if match is None else match.span()


def go_pattern(pattern: str) -> GoPattern:
    """Compile a regular expression in Go's syntax; short patterns are cached.

    Raises:
        PatternError: The pattern is not in Go's syntax; the text is Go's.
    """
    return _kept(pattern) if len(pattern) <= _LONGEST else GoPattern(pattern)


@lru_cache(maxsize=512)
def _kept(pattern: str) -> GoPattern:
    return GoPattern(pattern)
