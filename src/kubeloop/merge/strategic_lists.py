"""Lists in strategic merge patches: the merge rules of a field, and the order of a merged list."""

from __future__ import annotations

from typing import NamedTuple

from kubeloop.merge.errors import PatchError
from kubeloop.merge.go_text import go_text, go_type, same
from kubeloop.schema import Schemas, TypeSchema
from kubeloop.types import JSONValue

# The order of a merged list: elements of the patch in its order, the others at their old positions among them.
#
# Source: k8s.io/apimachinery pkg/util/strategicpatch (normalizeElementOrder, mergeSortedSlice). Elements are scalars, or objects that their
# merge key identifies.


def element_kind(*lists: list[JSONValue]) -> type:
    """Return the one type of all elements.

    Raises:
        PatchError: 422 for lists of lists, 500 for mixed types or no element at all.
    """
    kind: type | None = None
    for elements in lists:
        for element in elements:
            if kind is None:
                kind = type(element)
                if kind is list:
                    raise PatchError("lists of lists are not supported", 422)
            elif kind is not type(element):
                raise PatchError(f"list element types are not identical: {go_text(list(lists))}", 500)
    if kind is None:
        raise PatchError("no elements in any of the given slices", 500)
    return kind


def items_equal(left: JSONValue, right: JSONValue, key: str) -> bool:
    """Return whether two scalars are equal, or two objects have the same merge key.

    Raises:
        PatchError: 500, an element is not an object or lacks its merge key.
    """
    if not key:
        return same(left, right)
    return same(_key_of(left, key), _key_of(right, key))


def require_objects(elements: list[JSONValue]) -> None:
    """Check that all elements are objects.

    Raises:
        PatchError: 500, an element is not an object.
    """
    for element in elements:
        if not isinstance(element, dict):
            raise PatchError(f"expected a map[string]interface {{}}, but received a {go_type(element)}", 500)


def _key_of(element: JSONValue, key: str) -> JSONValue:
    require_objects([element])
    if key not in element:
        raise PatchError(f"map: {go_text(element)} does not contain declared merge key: {key}", 500)
    return element[key]


def split_by_presence(elements: list[JSONValue], listed: list[JSONValue], key: str) -> tuple[list[JSONValue], list[JSONValue]]:
    """Split elements into those present in ``listed`` and the others."""
    places = _Positions(listed, key)
    named: list[JSONValue] = []
    rest: list[JSONValue] = []
    for element in elements:
        (named if places.of(_key_of(element, key) if key else element) >= 0 else rest).append(element)
    return named, rest


def in_order(
    named: list[JSONValue], rest: list[JSONValue], order: list[JSONValue], old: list[JSONValue], key: str, kind: type
) -> list[JSONValue]:
    """Return ``named``, ordered as ``order``, merged with ``rest``, ordered as ``old``.

    An element of ``rest`` comes before the first named element that it preceded in ``old``.

    Args:
        named: The elements that the patch orders.
        rest: The other elements.
        order: The order of the patch.
        old: The order before the patch.
        key: The merge key of objects.
        kind: The type of the elements, as from ``element_kind``.

    Raises:
        PatchError: 500, an object of ``order`` or ``old`` lacks its merge key.
    """
    if kind is not dict:
        key = ""
    named = _sorted(named, order, key)
    rest = _sorted(rest, old, key)
    places = _Positions(old, key)
    result: list[JSONValue] = []
    left = 0
    for element in named:
        place = places.of_element(element)
        while left < len(rest) and 0 <= places.of_element(rest[left]) < place:
            result.append(rest[left])
            left += 1
        result.append(element)
    return result + rest[left:]


def _sorted(elements: list[JSONValue], order: list[JSONValue], key: str) -> list[JSONValue]:
    if key:
        for element in (*elements, *order):
            _key_of(element, key)
    places = _Positions(order, key)
    ranked = [(places.of_element(element), element) for element in elements]
    # Insertion instead of sorting, because upstream's order is undefined for an element that the order lacks: it goes before all elements
    # that it precedes, which is also the result of upstream's sort for up to twenty elements.
    for end in range(1, len(ranked)):
        position = end
        while position and (min(ranked[position][0], ranked[position - 1][0]) < 0 or ranked[position][0] < ranked[position - 1][0]):
            ranked[position - 1], ranked[position] = ranked[position], ranked[position - 1]
            position -= 1
    return [element for _, element in ranked]


class _Positions:
    """Maps the scalars or merge keys of a list to their first positions; 1, 1.0 and true are three keys."""

    def __init__(self, elements: list[JSONValue], key: str) -> None:
        self._key = key
        self._positions: dict[tuple[type, JSONValue], int] = {}
        for position, element in enumerate(elements):
            self._positions.setdefault(self._name(self._identity(element)), position)

    def of_element(self, element: JSONValue) -> int:
        return self.of(self._identity(element))

    def of(self, identity: JSONValue) -> int:
        """Return the position of the element with this identity, or -1 if there is none."""
        return self._positions.get(self._name(identity), -1)

    def _identity(self, element: JSONValue) -> JSONValue:
        return element.get(self._key) if self._key and isinstance(element, dict) else element

    @staticmethod
    def _name(identity: JSONValue) -> tuple[type, JSONValue]:
        return type(identity), go_text(identity) if isinstance(identity, dict | list) else identity


class FieldMerge(NamedTuple):
    """The merge rule of a field.

    ``strategy`` is "merge", "replace" or empty (maps are merged, lists replaced). ``key`` is the merge key of a list of objects.
    """

    schema: PatchSchema
    strategy: str
    key: str


class PatchSchema:
    """The schema of a struct, map or element type during a merge. Messages are those of k8s.io/apimachinery's lookup by Go type."""

    __slots__ = ("_name", "_node", "_schemas")

    def __init__(self, node: TypeSchema, schemas: Schemas, name: str = "") -> None:
        self._name = node.ref.rpartition(".")[2] or name
        self._node = schemas.resolve(node)
        self._schemas = schemas

    @property
    def kind(self) -> str:
        """The kind of its Go type, for messages: struct, map or slice."""
        if self._node.is_list:
            return "slice"
        return "map" if self._node.is_map else "struct"

    def field(self, key: str) -> FieldMerge:
        """Return the merge rules of the field ``key``.

        Raises:
            PatchError: 500, there is no such field, as inside free-form values (a ControllerRevision's ``data``).
        """
        if self._node.is_map or self._node.is_list:
            raise PatchError(f"merging an object in json but data type is not struct, instead is: {self.kind}", 500)
        # encoding/json finds a field whatever its case; so does upstream here.
        properties = self._node.properties
        child = properties.get(key) or next((child for name, child in properties.items() if name.lower() == key.lower()), None)
        if child is None:
            raise PatchError(f'unable to find api field in struct {self._name} for the json field "{key}"', 500)
        strategy = ",".join(part for part in child.patch_strategy.split(",") if part != "retainKeys")
        return FieldMerge(PatchSchema(child, self._schemas), strategy, child.patch_merge_key)

    def retains(self, key: str) -> bool:
        """Return whether the field ``key`` has the patch strategy retainKeys: the patch lists the keys that stay, as for unions."""
        child = self._node.properties.get(key)
        return child is not None and "retainKeys" in child.patch_strategy.split(",")

    def list_field(self, key: str) -> FieldMerge:
        """Return the merge rule of the list ``key``. Its ``schema`` is the schema of the elements.

        Raises:
            PatchError: 500, there is no such field, or it is not a list of scalars or objects.
        """
        found = self.field(key)
        node = found.schema._node
        if node.items is None:
            raise PatchError(f"expected slice or array type, but got: {self.kind}", 500)
        element = PatchSchema(node.items, self._schemas)
        if element._node.is_list:
            raise PatchError("unexpected slice of slice", 500)
        return found._replace(schema=element)
