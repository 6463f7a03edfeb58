"""Decodes and encodes ``metadata.managedFields``, in Kubernetes' order.

Source: Kubernetes API reference, "ManagedFieldsEntry"; k8s.io/apimachinery pkg/util/managedfields/internal/managedfields.go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kubeloop.apiserver.ownership.scopes import SCALE
from kubeloop.merge.fields import FieldSet, Path
from kubeloop.merge.fields.elements import ElementError, json_text
from kubeloop.merge.fields.managers import VersionedSet
from kubeloop.meta.time import parse_time
from kubeloop.types import JSONObject

APPLY = "Apply"
UPDATE = "Update"


class InvalidEntries(Exception):
    """Entries of managedFields cannot be decoded. The message is that of Kubernetes."""


class FieldManager(NamedTuple):
    """Identity of a field manager. A manager that applies is the same in all versions: its ``api_version`` is empty."""

    name: str
    operation: str
    api_version: str
    subresource: str


@lru_cache(maxsize=4096)
def identifier(name: str, operation: str, api_version: str, subresource: str) -> str:
    """Return the identity of a manager as text, in upstream's form: conflicts are listed in the order of these texts.

    Args:
        name: Name of the manager.
        operation: Apply or Update.
        api_version: API version of the write; ignored for Apply.
        subresource: Subresource of the write; empty for the object.

    Returns:
        A JSON object with the parts that are not empty.
    """
    parts = {"manager": name, "operation": operation, "apiVersion": "" if operation == APPLY else api_version, "subresource": subresource}
    return "{" + ",".join(f'"{part}":{json_text(value)}' for part, value in parts.items() if value) + "}"


@lru_cache(maxsize=4096)
def manager_named(text: str) -> FieldManager:
    """Return the manager with this ``identifier``."""
    parts = json.loads(text)
    return FieldManager(parts.get("manager", ""), parts["operation"], parts.get("apiVersion", ""), parts.get("subresource", ""))


@dataclass(slots=True)
class ManagedFields:
    """The owned fields of each manager of one object, and the time of its entry (RFC 3339, or None), by ``identifier``."""

    fields: dict[str, VersionedSet] = field(default_factory=dict)
    times: dict[str, str | None] = field(default_factory=dict)


def is_reset(entries: Any) -> bool:
    """Return whether the managedFields of a request reset ownership: an empty list, or a list with a single empty entry."""
    return isinstance(entries, list) and (not entries or entries == [{}])


def decode(entries: list[JSONObject] | None) -> ManagedFields:
    """Decode managedFields entries. A later entry of the same manager replaces an earlier one.

    Raises:
        InvalidEntries: An entry is invalid.
    """
    managed = ManagedFields()
    for index, entry in enumerate(entries or ()):
        operation, version, fields_type = entry.get("operation"), entry.get("apiVersion"), entry.get("fieldsType")
        if operation not in (APPLY, UPDATE):
            raise InvalidEntries("operation must be `Apply` or `Update`")
        if not version:
            raise InvalidEntries("apiVersion must not be empty")
        if not fields_type:
            raise InvalidEntries(f"missing fieldsType in managed fields entry {index}")
        if fields_type != "FieldsV1":
            raise InvalidEntries(f"invalid fieldsType {json.dumps(fields_type)} in managed fields entry {index}")
        applied = operation == APPLY
        manager = identifier(entry.get("manager") or "", operation, version, entry.get("subresource") or "")
        try:
            owned = FieldSet.from_json(entry.get("fieldsV1"))
        except ElementError as error:
            raise InvalidEntries(f"error decoding versioned set from {json.dumps(entry)}: error decoding set: {error}") from None
        managed.fields[manager] = VersionedSet(owned, version, applied)
        managed.times[manager] = entry.get("time")
    return managed


def encode(managed: ManagedFields) -> list[JSONObject]:
    """Return new managedFields entries: those of Apply first, then by time (in seconds), manager, version and subresource."""
    result = [_entry(manager, owned, managed.times.get(manager)) for manager, owned in managed.fields.items()]
    if len(result) > 1:
        result.sort(key=_order)
    return result


def restore_valid_entries(metadata: JSONObject, before: list[JSONObject] | None, warnings: list[str]) -> None:
    """Restore managedFields (``before``) and add a warning if admission has made them invalid."""
    after = metadata.get("managedFields")
    if after is before or after == before:
        return
    try:
        decode(after)
    except InvalidEntries as error:
        metadata.pop("managedFields", None)
        if before is not None:
            metadata["managedFields"] = before
        warnings.append(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission "
            f"controller; please fix your requests: {error}"
        )


def _entry(text: str, owned: VersionedSet, time: str | None) -> JSONObject:
    manager = manager_named(text)
    entry: JSONObject = {"manager": manager.name} if manager.name else {}
    entry["operation"] = APPLY if owned.applied else manager.operation
    entry["apiVersion"] = owned.api_version
    if time is not None:
        entry["time"] = time
    entry["fieldsType"] = "FieldsV1"
    entry["fieldsV1"] = owned.set.to_json()
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


def _order(entry: JSONObject) -> tuple[str, int, str, str, str]:
    names = entry.get("manager", ""), entry["apiVersion"], entry.get("subresource", "")
    return entry["operation"], seconds(entry.get("time")), *names


@lru_cache(maxsize=1024)
def seconds(time: str | None) -> int:
    """Return a time in seconds since the epoch, or 0 for None."""
    return int(parse_time(time).timestamp()) if time else 0


# Converts the owners of replicas between an object and its ``/scale``, in both directions.
#
# Source: k8s.io/apimachinery pkg/util/managedfields/scalehandler.go. As upstream, an owner that is converted back from a Scale has no time.


#: API version -> path of the replicas in it; None for a version without a scale.
Replicas = Mapping[str, Path | None]

_REPLICAS: Final[Path] = ("f:spec", "f:replicas")


def to_scale(entries: list[JSONObject] | None, replicas: Replicas) -> list[JSONObject]:
    """Return the managedFields of an object's Scale.

    Raises:
        InvalidEntries: An entry is invalid.
    """
    managed, value = decode(entries), ManagedFields()
    for manager, owned in managed.fields.items():
        path = replicas.get(owned.api_version)
        if path is not None and path in owned.set:
            value.fields[manager] = VersionedSet(FieldSet.from_paths(_REPLICAS), SCALE.api_version, owned.applied)
            value.times[manager] = managed.times.get(manager)
    return encode(value)


def to_parent(
    entries: list[JSONObject] | None, scale_entries: list[JSONObject] | None, replicas: Replicas, api_version: str
) -> list[JSONObject]:
    """Return the managedFields of an object after a write of its Scale.

    Args:
        entries: managedFields of the object before the write.
        scale_entries: managedFields of the written Scale.
        replicas: API version -> path of the replicas.
        api_version: API version of the request.

    Returns:
        New entries.

    Raises:
        InvalidEntries: An entry is invalid.
    """
    managed, scale, value = decode(entries), decode(scale_entries).fields, ManagedFields()
    for manager, owned in managed.fields.items():
        if owned.api_version not in replicas:
            continue  # a version that does not exist any more
        path = replicas[owned.api_version]
        if path is None or path not in owned.set or scale.pop(manager, None) is not None:
            retained = owned
        else:
            retained = owned._replace(set=owned.set - FieldSet.from_paths(path))
            if not retained.set:
                continue
        value.fields[manager], value.times[manager] = retained, managed.times.get(manager)
    path = replicas.get(api_version)
    for manager, owned in scale.items():
        if path is not None and _REPLICAS in owned.set:
            value.fields[manager] = VersionedSet(FieldSet.from_paths(path), api_version, owned.applied)
            value.times[manager] = managed.times.get(manager)
    return encode(value)
