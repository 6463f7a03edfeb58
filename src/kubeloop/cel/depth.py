"""How deep expressions may nest, which is what cel-go allows, and room on the stack for that."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Final

from kubeloop.cel.syntax import Call, Node, Select, children

#: Levels of one rule of the grammar within itself, and of operators within each other.
MOST_LEVELS: Final = 250
_COUNTED: Final = frozenset({
    "_?_:_", "_[_]", "_[?_]", "_?._", "_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_", "@in", "_+_", "_-_", "_*_", "_/_", "_%_",
})  # fmt: skip
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


def is_too_deep(root: Node) -> bool:
    """Whether more than 250 operators, selections and calls of members stand within each other."""
    left = [(root, 0)]
    while left:
        node, depth = left.pop()
        depth += isinstance(node, Select) or (isinstance(node, Call) and (node.target is not None or node.function in _COUNTED))
        if depth > MOST_LEVELS:
            return True
        left += [(one, depth) for one in children(node)]
    return False
