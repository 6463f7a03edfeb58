"""Set operations on field sets, on trees in FieldsV1's form; pure functions that share unchanged parts.

A node maps elements to nodes. An empty node below the root is a field that is in the set; a node with children is in it if it holds ".".
Canonical: no node below the root holds only ".", and none is without members.
"""

from __future__ import annotations

from typing import Any, Final

#: A node; never changed once a set refers to it.
Node = dict[str, Any]

SELF: Final = "."
LEAF: Final[Node] = {}


def is_member(node: Node) -> bool:
    return not node or SELF in node


def union(left: Node, right: Node) -> Node:
    """Return the union of two trees, or of two of their nodes."""
    if left is right or not right:
        return left
    if not left:
        return right
    out = dict(left)
    for element, node in right.items():
        known = out.get(element)
        if known is None:
            out[element] = node
        elif known is not node and element != SELF:
            out[element] = _union_below(known, node)
    return out


def _union_below(left: Node, right: Node) -> Node:
    if not left:
        return right if is_member(right) else {SELF: LEAF, **right}
    if not right:
        return left if SELF in left else {SELF: LEAF, **left}
    return union(left, right)


def intersection(left: Node, right: Node) -> Node:
    """Return the fields that are in both trees."""
    out: Node = {}
    if len(right) < len(left):
        left, right = right, left
    for element, node in left.items():
        other = right.get(element)
        if other is not None:
            found = _intersection_below(node, other)
            if found is not None:
                out[element] = found
    return out


def _intersection_below(left: Node, right: Node) -> Node | None:
    if left is right:
        return left
    if not left:
        return LEAF if is_member(right) else None
    if not right:
        return LEAF if SELF in left else None
    return _canonical(intersection(left, right))


def difference(left: Node, right: Node) -> Node:
    """Return the difference of two roots: each field of ``right`` is removed, the fields below it stay."""
    if not right or not left:
        return left
    out: Node = {}
    for element, node in left.items():
        other = right.get(element)
        if other is None:
            out[element] = node
        elif (found := _difference_below(node, other)) is not None:
            out[element] = found
    return out


def _difference_below(left: Node, right: Node) -> Node | None:
    if left is right and not left:
        return None
    if not left:
        return None if is_member(right) else left
    if not right:
        return {element: node for element, node in left.items() if element != SELF} if SELF in left else left
    # "." of both sides is LEAF, whose difference is empty.
    return _canonical(difference(left, right))


def recursive_difference(left: Node, right: Node) -> Node:
    """Return the recursive difference of two roots: each field of ``right`` is removed with all fields below it."""
    if not right or not left:
        return left
    out: Node = {}
    for element, node in left.items():
        other = right.get(element)
        if other is None:
            out[element] = node
        elif not is_member(other):
            found = node if not node else _canonical(recursive_difference(node, other))
            if found is not None:
                out[element] = found
    return out


def leaves(node: Node) -> Node:
    """Return only the fields without fields below them."""
    return {element: leaves(below) for element, below in node.items() if element != SELF}


def size(node: Node) -> int:
    return sum(1 if not below else size(below) for below in node.values())


def _canonical(node: Node) -> Node | None:
    if not node:
        return None
    if len(node) == 1 and SELF in node:
        return LEAF
    return node


canonical = _canonical


def with_path(root: Node, path: tuple[str, ...]) -> Node:
    """Return a root that also contains ``path``, which is not empty."""
    return union(root, single(path))


def single(path: tuple[str, ...]) -> Node:
    node: Node = LEAF
    for element in reversed(path):
        node = {element: node}
    return node
