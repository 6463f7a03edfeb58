"""``FieldSet``: a set of an object's fields, such as those a manager owns; converts from and to FieldsV1.

Source: KEP-555 (server-side apply), Kubernetes API reference "FieldsV1".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from kubeloop.merge.fields import elements, tree
from kubeloop.merge.fields.elements import ElementError, Path
from kubeloop.merge.fields.tree import LEAF, SELF, Node

#: Maximum levels of a fieldsV1: far more than objects have, and few enough for recursion.
_DEEPEST = 200


class FieldSet:
    """An immutable set of paths of fields.

    Guarantees
        Equal sets compare equal however they were built or written. Operations never change their operands and share unchanged parts.
        A path may be in the set without the paths above or below it.

    Not guaranteed
        The fields exist in some object, or belong to its type.
    """

    __slots__ = ("_root", "_written")

    def __init__(self, root: Node | None = None) -> None:
        """Create a set from a tree of fields.

        ``root`` must be canonical (see ``tree``) and must not change afterwards. Use ``from_paths`` or ``from_json`` for other input.
        """
        self._root: Node = LEAF if root is None else root
        #: Whether the tree is a document as a server wrote it, so that it need not be encoded again.
        self._written = False

    @classmethod
    def from_paths(cls, *paths: Path) -> FieldSet:
        """Build a set of paths, which are tuples of elements: ``("f:spec", "f:replicas")``. The empty path is left out."""
        root: Node = LEAF
        for path in paths:
            if path:
                root = tree.with_path(root, path)
        return cls(root)

    @classmethod
    def from_json(cls, document: Any) -> FieldSet:
        """Build a set from a ``fieldsV1`` as a JSON tree. The set references the tree: do not change it afterwards.

        Elements of an unknown type are left out, as Kubernetes does.

        Raises:
            ElementError: The document is not a tree of path elements.
        """
        found = cls(_read(document, 0))
        found._written = found._root is document
        return found

    def to_json(self) -> dict[str, Any]:
        """Return a ``fieldsV1``: the document from which this set was read if that was canonical, else a new one in Kubernetes' order.

        The caller must not change it.
        """
        return self._root if self._written else _write(self._root)

    @property
    def root(self) -> Node:
        """The set as a tree of path elements, which callers must not change."""
        return self._root

    def __or__(self, other: FieldSet) -> FieldSet:
        return FieldSet(tree.union(self._root, other._root))

    def __and__(self, other: FieldSet) -> FieldSet:
        return FieldSet(tree.intersection(self._root, other._root))

    def __sub__(self, other: FieldSet) -> FieldSet:
        """Return the set without the paths of ``other``; the paths below them stay."""
        return FieldSet(tree.difference(self._root, other._root))

    def recursive_difference(self, other: FieldSet) -> FieldSet:
        """Return the set without the paths of ``other`` and all paths below them."""
        return FieldSet(tree.recursive_difference(self._root, other._root))

    def leaves(self) -> FieldSet:
        """Return only the paths without another path of the set below them."""
        return FieldSet(tree.leaves(self._root))

    def below(self, element: str) -> FieldSet:
        """Return the paths of the set that begin with ``element``, relative to it."""
        node = self._root.get(element) or LEAF
        return FieldSet({name: below for name, below in node.items() if name != SELF} if SELF in node else node)

    def __contains__(self, path: Path) -> bool:
        node = self._root
        if not path:
            return False
        for element in path:
            found = node.get(element)
            if found is None:
                return False
            node = found
        return tree.is_member(node)

    def __iter__(self) -> Iterator[Path]:
        """Iterate over the paths in Kubernetes' order: at each level first the members, then the paths below each element."""
        return _paths(self._root, ())

    def __len__(self) -> int:
        return tree.size(self._root)

    def __bool__(self) -> bool:
        return bool(self._root)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldSet) and self._root == other._root

    # A set is a value, but hashing would walk the tree; nothing needs it as a key.
    __hash__ = None  # type: ignore[assignment]  # the documented way to say "not hashable"

    def __repr__(self) -> str:
        return f"FieldSet({', '.join(map(elements.path_text, self))})"


def _read(document: Any, depth: int) -> Node:
    """Convert FieldsV1 to a node with canonical keys. A canonical document, the usual case, is returned itself, not a copy."""
    if document.__class__ is not dict or depth > _DEEPEST:
        return _rebuilt(document, depth)
    for key, below in document.items():
        if key[:2] == "f:":
            if below == LEAF:
                continue
        elif key == SELF:
            if below == LEAF and depth and len(document) > 1:
                continue
            return _rebuilt(document, depth)
        elif elements.canonical(key) != key:
            return _rebuilt(document, depth)
        if _read(below, depth + 1) is not below:
            return _rebuilt(document, depth)
    return document


def _rebuilt(document: Any, depth: int) -> Node:
    if document is None:
        return LEAF
    if not isinstance(document, dict):
        raise ElementError(f"fields are objects within objects, not {type(document).__name__}")
    if depth > _DEEPEST:
        raise ElementError("fields are nested too deeply")
    out: Node = {}
    for key, below in document.items():
        if key == SELF:
            if depth:
                out[SELF] = LEAF
            continue
        element = elements.canonical(key)
        if element is not None:
            node = _rebuilt(below, depth + 1)
            known = out.get(element)
            out[element] = node if known is None else tree.union({element: known}, {element: node})[element]
    return LEAF if len(out) == 1 and SELF in out else out


def _write(node: Node) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for element in _sorted(node):
        below = node[element]
        out[element] = _write(below) if below else {}
    return out


def _sorted(node: Node) -> list[str]:
    ordered = sorted(node)
    # Most nodes hold only fields (and "." before them), whose texts sort as the elements do.
    if len(ordered) < 2 or ordered[-1][0] == "f":
        return ordered
    first = 1 if ordered[0] == SELF else 0
    return ordered[:first] + sorted(ordered[first:], key=elements.order)


def _paths(node: Node, prefix: Path) -> Iterator[Path]:
    ordered = [element for element in _sorted(node) if element != SELF]
    for element in ordered:
        if tree.is_member(node[element]):
            yield (*prefix, element)
    for element in ordered:
        if node[element]:
            yield from _paths(node[element], (*prefix, element))


# Filters of field sets: limit the fields that a write through some endpoint can own.
#
# Source: structured-merge-diff's fieldpath.Filter; ``GetResetFields`` of Kubernetes' strategies are excluded fields, or included patterns.


Filter = Callable[[FieldSet], FieldSet]

#: Matches any element in a pattern.
ANY: Final = "*"


def excluding(fields: FieldSet) -> Filter:
    """Return a filter that removes ``fields`` and the fields below them."""
    return lambda field_set: field_set.recursive_difference(fields)


def including(*patterns: Path) -> Filter:
    """Return a filter that keeps only the fields on the way to, at or below one of ``patterns``.

    A pattern is a path in which ``ANY`` matches any element.
    """
    matcher: Node = {}
    for pattern in patterns:
        _add(matcher, pattern)
    return lambda field_set: FieldSet(_matching(field_set.root, matcher))


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
