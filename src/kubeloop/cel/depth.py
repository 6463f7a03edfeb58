"""Room on the stack for expressions that nest as deep as cel-go lets them: 250 levels, each a few calls of ours."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Final

#: Calls that 250 levels may take, several each, over and above what is on the stack already.
_ENOUGH: Final = 5000
#: What is shorter cannot nest so deep that it needs more than there is.
_SHORT: Final = 120
_LOCK: Final = RLock()


@contextmanager
def room_for(source: str) -> Iterator[None]:
    """While it lasts, the stack may grow further. One at a time, so that none takes away the room of another."""
    if len(source) < _SHORT:
        yield
        return
    with _LOCK:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(before + _ENOUGH)
        try:
            yield
        finally:
            sys.setrecursionlimit(before)
