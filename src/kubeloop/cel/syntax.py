"""The syntax tree of a CEL expression with expanded macros. Node identifiers are the parser's; positions are stored separately."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Final, TypeAlias


@dataclass(slots=True)
class Const:
    id: int
    #: None, bool, int, UInt, float, str or bytes.
    value: Any


@dataclass(slots=True)
class Ident:
    id: int
    name: str


@dataclass(slots=True)
class Select:
    id: int
    operand: Node
    field: str
    #: True for ``has(a.b)``.
    test_only: bool = False


@dataclass(slots=True)
class CallNode:
    id: int
    function: str
    args: list[Node]
    #: The object of a member call.
    target: Node | None = None


@dataclass(slots=True)
class ListLiteral:
    id: int
    elements: list[Node]
    #: Indices of optional elements (``?element``).
    optional: frozenset[int] = frozenset()


@dataclass(slots=True)
class EntryNode:
    """An entry of a map (``key`` is a node) or of a message (``key`` is the field's name)."""

    id: int
    key: Node | str
    value: Node
    optional: bool = False


@dataclass(slots=True)
class MapLiteral:
    id: int
    entries: list[EntryNode]


@dataclass(slots=True)
class StructLiteral:
    id: int
    name: str
    entries: list[EntryNode]


@dataclass(slots=True)
class Comprehension:
    """A fold: the expansion of ``all``, ``exists``, ``map``, ``filter`` and similar macros."""

    id: int
    variable: str
    over: Node
    accumulator: str
    initial: Node
    condition: Node
    step: Node
    result: Node
    #: The second variable, besides which the first is the key or index; empty if there is only one.
    variable2: str = ""


Node: TypeAlias = Const | Ident | Select | CallNode | ListLiteral | MapLiteral | StructLiteral | Comprehension


@dataclass(slots=True)
class Parsed:
    source: str
    root: Node
    #: Offset in code points of each node.
    positions: dict[int, int] = field(default_factory=dict)

    def fresh(self, position: int) -> int:
        """Return a new node identifier with the given position."""
        number = max(self.positions, default=0) + 1
        self.positions[number] = position
        return number


def children(node: Node) -> Iterator[Node]:
    match node:
        case Select():
            yield node.operand
        case CallNode():
            if node.target is not None:
                yield node.target
            yield from node.args
        case ListLiteral():
            yield from node.elements
        case MapLiteral() | StructLiteral():
            for entry in node.entries:
                if not isinstance(entry.key, str):
                    yield entry.key
                yield entry.value
        case Comprehension():
            yield from (node.over, node.initial, node.condition, node.step, node.result)
        case _:
            return


def walk(node: Node) -> Iterator[Node]:
    """Yield the node and everything below it, parents first."""
    left = [node]
    while left:
        one = left.pop()
        yield one
        left.extend(reversed(list(children(one))))


def qualified_name(node: Node) -> str | None:
    """Return ``a.b.c`` if a node consists only of selections from an identifier, else None."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test_only:
        prefix = qualified_name(node.operand)
        return None if prefix is None else f"{prefix}.{node.field}"
    return None


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
def extended_recursion_limit(source: str) -> Iterator[None]:
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
    """Return whether more than 250 operators, selections and member calls are nested."""
    left = [(root, 0)]
    while left:
        node, depth = left.pop()
        depth += isinstance(node, Select) or (isinstance(node, CallNode) and (node.target is not None or node.function in _COUNTED))
        if depth > MOST_LEVELS:
            return True
        left += [(one, depth) for one in children(node)]
    return False
