"""The syntax tree of a CEL expression with expanded macros. Node identifiers are the parser's; positions are stored separately."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias


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
    #: The second variable (then the first is the key or index); empty if there is one.
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
    """Return ``a.b.c`` if a node consists only of selections from an identifier."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test_only:
        prefix = qualified_name(node.operand)
        return None if prefix is None else f"{prefix}.{node.field}"
    return None
