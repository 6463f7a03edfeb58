"""The nesting limits of expressions, which are cel-go's, and the Python stack that they need."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Final

from kubeloop.cel.syntax import CallNode, Node, Select, children

#: Levels of one grammar rule within itself, and of operators within each other.
MOST_LEVELS: Final = 250
_COUNTED: Final = frozenset({
    "_?_:_", "_[_]", "_[?_]", "_?._", "_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_", "@in", "_+_", "_-_", "_*_", "_/_", "_%_",
})  # fmt: skip
#: Python calls that 250 levels may take, several each, beyond the present depth of the stack.
_ENOUGH: Final = 5000
#: A shorter text cannot nest deeply enough to need more stack.
_SHORT: Final = 120
_LOCK: Final = RLock()


@contextmanager
def room_for(source: str) -> Iterator[None]:
    """Allow a deeper Python stack inside the block. One block at a time, so that no thread lowers the limit of another."""
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
    """Whether more than 250 operators, selections and member calls are nested."""
    left = [(root, 0)]
    while left:
        node, depth = left.pop()
        depth += isinstance(node, Select) or (isinstance(node, CallNode) and (node.target is not None or node.function in _COUNTED))
        if depth > MOST_LEVELS:
            return True
        left += [(one, depth) for one in children(node)]
    return False
