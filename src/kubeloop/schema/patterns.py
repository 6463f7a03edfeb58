"""Go's regular expressions with the results of Go's ``regexp``, in linear time for every pattern.

Python's ``re`` runs patterns in which at most one character or class repeats; ``linear`` runs all others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from kubeloop.schema.linear import LinearPattern, TooLarge
from kubeloop.schema.regular import PatternError, compile_go

_REPEATS: Final = re.compile(r"(?<!\\)(?:\\\\)*[*+{]")
#: Maximum length of a pattern that is cached after compiling.
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
        """Whether the pattern matches anywhere."""
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
        found = self._simple.search(text, at)
        return None if found is None else found.span()


def go_pattern(pattern: str) -> GoPattern:
    """
    Raises:
        PatternError: the pattern is not in Go's syntax; the text is Go's.
    """
    return _kept(pattern) if len(pattern) <= _LONGEST else GoPattern(pattern)


@lru_cache(maxsize=512)
def _kept(pattern: str) -> GoPattern:
    return GoPattern(pattern)
