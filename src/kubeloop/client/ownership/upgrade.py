"""From updates to server-side apply: what managers own that wrote by update goes over to one that applies.

Without it a field that an earlier release wrote by update, and the new one no longer applies, would stay for ever.
Source: client-go util/csaupgrade; https://kubernetes.io/docs/reference/using-api/server-side-apply/#upgrading-from-client-side-apply-to-server-side-apply
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import msgspec

from kubeloop.client.ownership.extract import is_of
from kubeloop.merge.fields import FieldSet
from kubeloop.meta import ManagedFieldsEntry, Resource


def upgrade_patch(obj: Resource, updaters: Collection[str], applier: str, *, subresource: str = "") -> list[dict[str, Any]]:
    """A JSON patch that gives what each of ``updaters`` owns by update to ``applier``, who applies; empty if there is nothing to do.

    The server refuses it with Conflict if somebody wrote since ``obj`` was read.
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
        both = FieldSet.from_json(target.fields()) | FieldSet.from_json(same_version.fields())
        target.fields_v1 = msgspec.Raw(msgspec.json.encode(both.to_json()))
    return [entry for entry in entries if entry is target or not is_of(entry, updater, "Update", subresource)]
