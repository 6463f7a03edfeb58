"""Filters of field sets: limit the fields that a write through some endpoint can own.

Source: structured-merge-diff's fieldpath.Filter; ``GetResetFields`` of Kubernetes' strategies are excluded fields, or included patterns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubeloop.merge.fields import tree
from kubeloop.merge.fields.elements import Path
from kubeloop.merge.fields.field_set import FieldSet
from kubeloop.merge.fields.tree import LEAF, SELF, Node

Filter = Callable[[FieldSet], FieldSet]

#: Matches any element in a pattern.
ANY: Final = "*"


def excluding(fields: FieldSet) -> Filter:
    """Return a filter that removes ``fields`` and the fields below them."""
    return lambda found: found.recursive_difference(fields)


def including(*patterns: Path) -> Filter:
    """Return a filter that includes only the fields on the way to, at or below one of ``patterns`` (paths of elements, or ``ANY`` before
    elements).
    """
    matcher: Node = {}
    for pattern in patterns:
        _add(matcher, pattern)
    return lambda found: FieldSet(_matching(found.root, matcher))


def _add(matcher: Node, pattern: Path) -> None:
    at = matcher
    for element in pattern[:-1]:
        below = at.setdefault(element, {})
        if SELF in below:
            return
        at = below
    # A node that maps to itself: everything below matches.
    at[pattern[-1]] = {SELF: LEAF}


def _matching(node: Node, matcher: Node) -> Node:
    out: Node = {}
    for element, below in node.items():
        if element == SELF:
            out[SELF] = LEAF
            continue
        pattern = matcher.get(ANY, matcher.get(element))
        if pattern is None:
            continue
        found = below if not below or SELF in pattern else tree.canonical(_matching(below, pattern))
        if found is not None:
            out[element] = found
    return out
