"""Limits of YAML documents, checked on the parser's events before a tree is made.

An alias costs a writer three bytes and a reader as much as its anchor: ten lines of aliases of aliases are a billion nodes.
"""

from __future__ import annotations

from typing import Any

import yaml

from kubeloop.meta.errors import DecodeError

#: Maximum number of nested levels. The C parser recurses, and so does every function that walks a tree; upstream allows 10,000.
DEEPEST = 256
#: Maximum number of nodes; an alias counts as all nodes of its anchor. A node takes about 1 KiB while it is read. The largest objects have
#: some 100,000.
MOST_NODES = 400_000
#: Maximum share of nodes that come from aliases. Source: gopkg.in/yaml.v2 decode.go (allowedAliasRatio).
_FEW_NODES, _MANY_NODES = 400_000, 4_000_000
_RATIO_OF_FEW, _RATIO_OF_MANY = 0.99, 0.10


def check_limits(loader: Any, *, documents: int | None = None) -> None:
    """Check the limits of YAML documents, by consuming the loader's events: all, or those of the first ``documents``.

    Raises:
        DecodeError: The document nests too deeply, has too many nodes, aliases that multiply, or an alias within its own anchor.
        yaml.YAMLError: the text is not YAML.
    """
    document = _Document()
    while loader.check_event():
        event = loader.get_event()
        if isinstance(event, yaml.DocumentStartEvent):
            document = _Document()
        elif isinstance(event, yaml.DocumentEndEvent):
            if documents is not None:
                documents -= 1
                if not documents:
                    return
        elif isinstance(event, yaml.AliasEvent):
            document.alias(event.anchor or "")
        elif isinstance(event, yaml.ScalarEvent):
            document.scalar(event.anchor)
        elif isinstance(event, yaml.CollectionStartEvent):
            document.begin(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            document.end()


class _Open:
    """A list or map that has begun: its anchor, the nodes before it, the levels below it."""

    __slots__ = ("anchor", "before", "levels")

    def __init__(self, anchor: str | None, before: int) -> None:
        self.anchor = anchor
        self.before = before
        self.levels = 1


class _Document:
    """Counts the nodes and levels of one document, and those of its anchors."""

    def __init__(self) -> None:
        self._nodes = 0
        self._from_aliases = 0
        self._open: list[_Open] = []
        #: Nodes and levels of each anchor.
        self._anchors: dict[str, tuple[int, int]] = {}

    def scalar(self, anchor: str | None) -> None:
        self._count(1)
        if anchor:
            self._anchors[anchor] = (1, 0)

    def begin(self, anchor: str | None) -> None:
        self._open.append(_Open(anchor, self._nodes))
        if len(self._open) > DEEPEST:
            raise _too_deep()
        self._count(1)

    def end(self) -> None:
        closed = self._open.pop()
        if closed.anchor:
            self._anchors[closed.anchor] = (self._nodes - closed.before, closed.levels)
        self._holds(closed.levels)

    def alias(self, anchor: str) -> None:
        if any(one.anchor == anchor for one in self._open):
            raise DecodeError(f"yaml: anchor '{anchor}' value contains itself")
        # The constructor refuses an unknown anchor, with its line.
        nodes, levels = self._anchors.get(anchor, (1, 0))
        if len(self._open) + levels > DEEPEST:
            raise _too_deep()
        self._holds(levels)
        self._from_aliases += nodes
        self._count(nodes)
        if self._from_aliases > 100 and self._nodes > 1000 and self._from_aliases / self._nodes > _allowed(self._nodes):
            raise DecodeError("yaml: document contains excessive aliasing")

    def _holds(self, levels: int) -> None:
        if self._open:
            self._open[-1].levels = max(self._open[-1].levels, levels + 1)

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MOST_NODES:
            raise DecodeError(f"yaml: document has more than {MOST_NODES} values; send it as JSON")


def _too_deep() -> DecodeError:
    return DecodeError(f"yaml: exceeded max depth of {DEEPEST}")


def _allowed(nodes: int) -> float:
    if nodes <= _FEW_NODES:
        return _RATIO_OF_FEW
    if nodes >= _MANY_NODES:
        return _RATIO_OF_MANY
    return _RATIO_OF_FEW - (_RATIO_OF_FEW - _RATIO_OF_MANY) * (nodes - _FEW_NODES) / (_MANY_NODES - _FEW_NODES)
