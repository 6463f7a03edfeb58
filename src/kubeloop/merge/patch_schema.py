"""The merge rules of a field for strategic merge: how its list merges and by which key. Reads them from the schema documents."""

from __future__ import annotations

from typing import NamedTuple

from kubeloop.merge.errors import PatchError
from kubeloop.schema import Schemas, TypeSchema


class FieldMerge(NamedTuple):
    """``strategy`` is "merge", "replace" or empty (maps merge, lists are replaced); ``key`` is the merge key of a list of objects."""

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
        """Return how the field ``key`` merges.

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
        """Whether a patch of the field ``key`` lists the fields that stay (patch strategy retainKeys: one of several alternatives)."""
        child = self._node.properties.get(key)
        return child is not None and "retainKeys" in child.patch_strategy.split(",")

    def list_field(self, key: str) -> FieldMerge:
        """Return how the list ``key`` merges; ``schema`` is that of its elements.

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
