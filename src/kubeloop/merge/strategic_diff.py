"""Computes the strategic merge patch between two states of an object: the reverse of ``strategic_merge``.

Source: k8s.io/apimachinery pkg/util/strategicpatch (CreateTwoWayMergePatch with SetElementOrder). Where merge keys do not identify the
items of a list, which upstream leaves to chance, the list is replaced by directive.
"""

from __future__ import annotations

from typing import NamedTuple

from kubeloop.merge.errors import PatchError
from kubeloop.merge.go_text import copy_tree, same
from kubeloop.merge.strategic import DELETE_FROM, DIRECTIVE, ELEMENT_ORDER, RETAIN_KEYS
from kubeloop.merge.strategic_lists import FieldMerge, PatchSchema
from kubeloop.schema import Schemas, TypeSchema
from kubeloop.types import JSONObject, JSONValue


class StrategicDiff(NamedTuple):
    """A patch. ``replaces`` says that a list is replaced as a whole, which overwrites concurrent changes by other clients."""

    patch: JSONObject
    replaces: bool


def create_strategic_patch(old: JSONObject, new: JSONObject, schema: TypeSchema, schemas: Schemas) -> StrategicDiff:
    """Return the patch that turns ``old`` into ``new``; it is empty if they are equal.

    Guarantees
        ``strategic_merge(old, patch)`` equals ``new`` if no object in ``new`` has a null member that ``old`` lacks. Items of a list with a
        merge key are patched one by one; items that only other clients added stay.

    Args:
        old: The object before.
        new: The object after.
        schema: The schema of the whole object.
        schemas: The document of that schema, for references.

    Raises:
        PatchError: A change lies in a field that the schema does not know, or inside a map of objects or lists.
    """
    diff = _Diff()
    patch = diff.of_maps(old, new, PatchSchema(schema, schemas))
    return StrategicDiff(patch, diff.replaces)


class _Diff:
    def __init__(self) -> None:
        self.replaces = False

    def of_maps(self, old: JSONObject, new: JSONObject, schema: PatchSchema) -> JSONObject:
        patch: JSONObject = {key: None for key, value in old.items() if new.get(key) is None and (value is not None or key not in new)}
        for key, value in new.items():
            if value is None:
                continue
            before = old.get(key)
            if same(before, value):
                continue
            if isinstance(value, dict) and isinstance(before, dict):
                patch[key] = self._map_field(before, value, schema, key)
            elif isinstance(value, list) and isinstance(before, list):
                self._list_field(patch, before, value, schema.list_field(key), key, retains=schema.retains(key))
            else:
                # Where the schema merges lists, a list that other clients created meanwhile is merged too.
                self.replaces |= isinstance(value, list) and schema.list_field(key).strategy != "merge"
                patch[key] = copy_tree(value)
        return patch

    def _map_field(self, old: JSONObject, new: JSONObject, schema: PatchSchema, key: str) -> JSONObject:
        field = schema.field(key)
        if field.strategy == "replace":
            return dict(copy_tree(new))
        patch = self.of_maps(old, new, field.schema) if field.schema.kind == "struct" else self._free(old, new)
        return self._retained(patch, new) if schema.retains(key) else patch

    @staticmethod
    def _free(old: JSONObject, new: JSONObject) -> JSONObject:
        """Return the patch between two maps with arbitrary keys: labels, data, quantities."""
        changed = {name: copy_tree(value) for name, value in new.items() if not same(old.get(name), value)}
        if any(isinstance(value, dict | list) and name in old for name, value in changed.items()):
            raise PatchError("a map of objects or lists cannot be merged into by a strategic merge patch", 500)
        gone: JSONObject = {name: None for name in old if name not in new}
        return gone | changed

    def _list_field(
        self, patch: JSONObject, old: list[JSONValue], new: list[JSONValue], field: FieldMerge, key: str, *, retains: bool
    ) -> None:
        if field.strategy != "merge":
            self.replaces = True
            patch[key] = copy_tree(new)
        elif all(isinstance(item, dict) for item in (*old, *new)):
            if not field.key or not (_are_told_apart(old, field.key) and _are_told_apart(new, field.key)):
                self.replaces = True
                patch[key] = [{DIRECTIVE: "replace"}, *copy_tree(new)]
                return
            items = self._items(old, new, field, retains=retains)
            if items:
                patch[key] = items
            patch[f"{ELEMENT_ORDER}/{key}"] = [{field.key: item[field.key]} for item in new]
        else:
            added = [item for item in new if not any(same(item, known) for known in old)]
            gone = [item for item in old if not any(same(item, known) for known in new)]
            if added:
                patch[key] = added
            if gone:
                patch[f"{DELETE_FROM}/{key}"] = gone
            patch[f"{ELEMENT_ORDER}/{key}"] = copy_tree(new)

    def _items(self, old: list[JSONObject], new: list[JSONObject], field: FieldMerge, *, retains: bool) -> list[JSONObject]:
        items: list[JSONObject] = []
        for item in new:
            before = next((one for one in old if same(one[field.key], item[field.key])), None)
            if before is None:
                items.append(copy_tree(item))
            elif not same(before, item):
                changes = self.of_maps(before, item, field.schema)
                items.append({field.key: item[field.key]} | (self._retained(changes, item) if retains else changes))
        kept = [item[field.key] for item in new]
        gone = [item[field.key] for item in old if not any(same(item[field.key], key) for key in kept)]
        return items + [{field.key: key, DIRECTIVE: "delete"} for key in gone]

    @staticmethod
    def _retained(patch: JSONObject, new: JSONObject) -> JSONObject:
        return patch | {RETAIN_KEYS: sorted(new)} if patch else patch


def _are_told_apart(items: list[JSONObject], key: str) -> bool:
    keys = [item.get(key) for item in items]
    return None not in keys and not any(same(one, other) for at, one in enumerate(keys) for other in keys[:at])
