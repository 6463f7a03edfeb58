"""Go's regular expressions as its ``regexp`` runs them: what it finds, in time that no pattern can blow up.

A pattern in which at most one character or class repeats is run by Python's ``re``, any other by ``linear``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from kubeloop.schema.linear import LinearPattern, TooLarge
from kubeloop.schema.regular import PatternError, compile_go

_REPEATS: Final = re.compile(r"(?<!\\)(?:\\\\)*[*+{]")
#: Characters of a pattern that is kept when it has been compiled.
_LONGEST: Final = 512
_REPEATED_GROUP: Final = re.compile(r"\)[*+{]")


class GoPattern:
    """A compiled pattern."""

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
        """Whether there is a match anywhere."""
        return self._simple.search(text) is not None if self._linear is None else self._linear.is_in(text)

    def matches(self, text: str) -> Iterator[str]:
        """What matches, one after the other. An empty match right behind another one does not count, as in Go."""
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
        found = self._simple.search(text, at)
        return None if found is None else found.span()


def go_pattern(pattern: str) -> GoPattern:
    """
    Raises:
        PatternError: not in Go's syntax, in Go's words.
    """
    return _kept(pattern) if len(pattern) <= _LONGEST else GoPattern(pattern)


@lru_cache(maxsize=512)
def _kept(pattern: str) -> GoPattern:
    return GoPattern(pattern)
