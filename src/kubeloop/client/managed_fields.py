"""Functions of a client for field ownership: extract the fields of one manager, and move fields from updates to server-side apply."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import msgspec

from kubeloop.codec import document_of
from kubeloop.codec.apply_configuration import read_owned
from kubeloop.meta import ManagedFieldsEntry, Resource
from kubeloop.types import JSONObject

# Extraction of the fields that a field manager applied, to change and apply them again.
#
# It uses only managedFields, so it needs no schema of the kind. Source: apimachinery pkg/util/managedfields
# (ExtractInto); KEP-555; structured-merge-diff fieldpath (f:, k:, v:, i: elements).


R = TypeVar("R", bound=Resource)

Raw = msgspec.Raw

_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])
_SELF = "."


def extract(obj: R, field_manager: str, *, subresource: str = "") -> R:
    """Return an object with only the fields that ``field_manager`` owns by server-side apply, and with name and namespace.

    Guarantees
        Applying the unchanged result changes nothing. Applying it without one of its fields gives up the ownership of that field.
        The result includes owned fields that the models do not know.

    Raises:
        ValueError: The object was not read from a server, or has no managedFields (informers remove them).
    """
    document = document_of(obj)
    managed = obj.metadata.managed_fields
    if document is None or not managed:
        raise ValueError(
            f'{obj.kind} "{obj.object_key()}" has no metadata.managedFields, which show what "{field_manager}" owns; '
            "read it with client.get (informers do not keep them)"
        )
    mine: JSONObject = {}
    other_managers: list[JSONObject] = []
    for entry in managed:
        if not mine and is_of(entry, field_manager, "Apply", subresource):
            mine = entry.fields()
        else:
            other_managers.append(entry.fields())
    found = _only(Raw(document), mine, other_managers) if mine else None
    owned = _OBJECT.decode(found) if found is not None else {}
    return read_owned(type(obj), _named(owned, obj), field_manager)


def is_of(entry: ManagedFieldsEntry, manager: str, operation: str, subresource: str) -> bool:
    """Return whether a managedFields entry belongs to a manager.

    Args:
        entry: One entry of ``metadata.managedFields``.
        manager: The manager's name.
        operation: ``Apply`` or ``Update``.
        subresource: The subresource that the manager wrote; empty for the object itself.
    """
    return (entry.manager, entry.operation, entry.subresource) == (manager, operation, subresource)


def _named(owned: dict[str, Raw], obj: Resource) -> bytes:
    metadata = _OBJECT.decode(owned.pop("metadata", Raw(b"{}")))
    for name, value in (("name", obj.metadata.name), ("namespace", obj.metadata.namespace)):
        if value:
            metadata[name] = Raw(msgspec.json.encode(value))
    head = {"apiVersion": obj.api_version, "kind": obj.kind, "metadata": metadata}
    return msgspec.json.encode({**head, **owned})


def _only(raw: Raw, mine: JSONObject, other_managers: list[JSONObject]) -> bytes | None:
    """Return the owned part of a value, or None if the manager owns nothing of it."""
    children = {element: below for element, below in mine.items() if element != _SELF}
    if not children:
        # The manager owns the whole value, unless others own parts of it: then the value was empty when applied, and they filled it.
        if any(element != _SELF for tree in other_managers for element in tree):
            return b"[]" if bytes(raw).lstrip()[:1] == b"[" else b"{}"
        return bytes(raw)
    try:
        if next(iter(children)).startswith("f:"):
            return _only_fields(raw, children, other_managers)
        return _only_items(raw, children, other_managers)
    except msgspec.ValidationError:
        return bytes(raw)  # another writer has changed the type of the value: the manager owns the whole value


def _only_fields(raw: Raw, children: JSONObject, other_managers: list[JSONObject]) -> bytes | None:
    kept: dict[str, Raw] = {}
    for name, part in _OBJECT.decode(raw).items():
        at = f"f:{name}"
        owned = _only(part, children[at], _below(other_managers, at)) if at in children else None
        if owned is not None:
            kept[name] = Raw(owned)
    return msgspec.json.encode(kept) if kept else None


def _only_items(raw: Raw, children: JSONObject, other_managers: list[JSONObject]) -> bytes | None:
    kept: list[Raw] = []
    for index, item in enumerate(_ARRAY.decode(raw)):
        tree = msgspec.json.decode(item)
        for element, below in children.items():
            keys = _match(element, index, tree)
            if keys is not None:
                kept.append(_with_keys(item, keys, _only(item, below, _below(other_managers, element)) or b"{}"))
                break
    return msgspec.json.encode(kept) if kept else None


def _match(element: str, index: int, item: Any) -> Iterable[str] | None:
    """Return the names of the item's keys if ``element`` identifies the item; None otherwise."""
    form, _, text = element.partition(":")
    if form == "i":
        return () if text == str(index) else None
    wanted = msgspec.json.decode(text)
    if form == "v":
        return () if _same(wanted, item) else None
    if isinstance(item, dict) and all(_same(value, item.get(key)) for key, value in wanted.items()):
        return tuple(wanted)
    return None


def _with_keys(item: Raw, keys: Iterable[str], owned: bytes) -> Raw:
    if not keys:
        return Raw(owned)
    parts, kept = _OBJECT.decode(item), _OBJECT.decode(owned)
    return Raw(msgspec.json.encode({name: part for name, part in parts.items() if name in keys or name in kept} | kept))


def _below(trees: list[JSONObject], element: str) -> list[JSONObject]:
    return [tree[element] for tree in trees if element in tree]


def _same(left: Any, right: Any) -> bool:
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


# Migration from updates to server-side apply: fields that managers own by update move to a manager that applies.
#
# Without it, a field that an earlier release updated and a later release does not apply would stay forever. Source: client-go
# util/csaupgrade; https://kubernetes.io/docs/reference/using-api/server-side-apply/#upgrading-from-client-side-apply-to-server-side-apply


def upgrade_patch(obj: Resource, updaters: Collection[str], applier: str, *, subresource: str = "") -> list[dict[str, Any]]:
    """Return a JSON patch that moves fields from updates to server-side apply, or an empty list if there is nothing to move.

    Args:
        obj: The object, with managedFields.
        updaters: Managers that own fields by update.
        applier: The manager that owns these fields by apply afterwards.
        subresource: The subresource whose fields move; empty for the object itself.

    Returns:
        Operations of RFC 6902. The server refuses them with Conflict if another writer changed the object after ``obj`` was read.
    """
    entries = [copy.copy(entry) for entry in obj.metadata.managed_fields]
    for updater in sorted(updaters):
        entries = _upgraded(entries, updater, applier, subresource)
    if entries == obj.metadata.managed_fields:
        return []
    return [
        {"op": "replace", "path": "/metadata/managedFields", "value": msgspec.json.decode(msgspec.json.encode(entries))},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": obj.metadata.resource_version},
    ]


def _upgraded(entries: list[ManagedFieldsEntry], updater: str, applier: str, subresource: str) -> list[ManagedFieldsEntry]:
    updates = [entry for entry in entries if is_of(entry, updater, "Update", subresource)]
    if not updates:
        return entries
    target = next((entry for entry in entries if is_of(entry, applier, "Apply", subresource)), None)
    if target is None:
        target, *updates = updates
        target.manager, target.operation = applier, "Apply"
    # Sets of another version name other fields: they are dropped with their entry, as upstream does.
    same_version = next((entry for entry in updates if entry.api_version == target.api_version), None)
    if same_version is not None:
        # Loaded here: most programs never upgrade ownership.
        from kubeloop.merge.fields import FieldSet

        both = FieldSet.from_json(target.fields()) | FieldSet.from_json(same_version.fields())
        target.fields_v1 = msgspec.Raw(msgspec.json.encode(both.to_json()))
    return [entry for entry in entries if entry is target or not is_of(entry, updater, "Update", subresource)]
