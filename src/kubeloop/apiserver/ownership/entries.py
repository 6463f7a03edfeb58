"""``metadata.managedFields``: from its entries to who owns what, and back, in Kubernetes' order.

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
from kubeloop.merge.fields.managing import VersionedSet
from kubeloop.meta.time import parse_time
from kubeloop.types import JSONObject

APPLY = "Apply"
UPDATE = "Update"


class InvalidEntries(Exception):
    """Entries that cannot be read; ``str()`` is what Kubernetes says of them."""


class Manager(NamedTuple):
    """What tells managers of one object apart. Who applies is one manager in all versions: ``api_version`` is empty."""

    name: str
    operation: str
    api_version: str
    subresource: str


@lru_cache(maxsize=4096)
def identifier(name: str, operation: str, api_version: str, subresource: str) -> str:
    """A manager as one text, as upstream spells it: its alphabet decides the order in which conflicts are told."""
    parts = {"manager": name, "operation": operation, "apiVersion": "" if operation == APPLY else api_version, "subresource": subresource}
    return "{" + ",".join(f'"{part}":{json_text(value)}' for part, value in parts.items() if value) + "}"


@lru_cache(maxsize=4096)
def manager_named(text: str) -> Manager:
    """The manager whose ``identifier`` is ``text``."""
    parts = json.loads(text)
    return Manager(parts.get("manager", ""), parts["operation"], parts.get("apiVersion", ""), parts.get("subresource", ""))


@dataclass(slots=True)
class Managed:
    """Who owns which fields of one object, and since when: RFC 3339 times, None for an entry that names none. By ``identifier``."""

    fields: dict[str, VersionedSet] = field(default_factory=dict)
    times: dict[str, str | None] = field(default_factory=dict)


def is_reset(entries: Any) -> bool:
    """Whether a request asks that nobody owns anything any more: no entry at all, or a single empty one."""
    return isinstance(entries, list) and (not entries or entries == [{}])


def decode(entries: list[JSONObject] | None) -> Managed:
    """A later entry of the same manager replaces an earlier one.

    Raises:
        InvalidEntries
    """
    managed = Managed()
    for at, entry in enumerate(entries or ()):
        operation, version, fields_type = entry.get("operation"), entry.get("apiVersion"), entry.get("fieldsType")
        if operation not in (APPLY, UPDATE):
            raise InvalidEntries("operation must be `Apply` or `Update`")
        if not version:
            raise InvalidEntries("apiVersion must not be empty")
        if not fields_type:
            raise InvalidEntries(f"missing fieldsType in managed fields entry {at}")
        if fields_type != "FieldsV1":
            raise InvalidEntries(f"invalid fieldsType {json.dumps(fields_type)} in managed fields entry {at}")
        applied = operation == APPLY
        manager = identifier(entry.get("manager") or "", operation, version, entry.get("subresource") or "")
        try:
            owned = FieldSet.from_json(entry.get("fieldsV1"))
        except ElementError as fault:
            raise InvalidEntries(f"error decoding versioned set from {json.dumps(entry)}: error decoding set: {fault}") from None
        managed.fields[manager] = VersionedSet(owned, version, applied)
        managed.times[manager] = entry.get("time")
    return managed


def encode(managed: Managed) -> list[JSONObject]:
    """Fresh entries, appliers first, then by time (to the second), manager, version and subresource."""
    found = [_entry(manager, owned, managed.times.get(manager)) for manager, owned in managed.fields.items()]
    if len(found) > 1:
        found.sort(key=_order)
    return found


def keep_readable(metadata: JSONObject, before: list[JSONObject] | None, warnings: list[str]) -> None:
    """Take back what admission plug-ins or webhooks made of managedFields where it cannot be read; ``before`` is what they were."""
    after = metadata.get("managedFields")
    if after is before or after == before:
        return
    try:
        decode(after)
    except InvalidEntries as fault:
        metadata.pop("managedFields", None)
        if before is not None:
            metadata["managedFields"] = before
        warnings.append(
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission "
            f"controller; please fix your requests: {fault}"
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
    """Seconds since the epoch; 0 for no time."""
    return int(parse_time(time).timestamp()) if time else 0


# Owners of replicas between an object and its ``/scale``: what the object's managers own of it, as managers of a Scale, and back.
#
# Source: k8s.io/apimachinery pkg/util/managedfields/scalehandler.go. As upstream, an owner that comes back from a Scale has lost its time.


#: API version to the path of replicas in it; None for a version without a scale.
Replicas = Mapping[str, Path | None]

_REPLICAS: Final[Path] = ("f:spec", "f:replicas")


def to_scale(entries: list[JSONObject] | None, replicas: Replicas) -> list[JSONObject]:
    """The managedFields of an object's Scale.

    Raises:
        InvalidEntries
    """
    managed, found = decode(entries), Managed()
    for manager, owned in managed.fields.items():
        path = replicas.get(owned.api_version)
        if path is not None and path in owned.set:
            found.fields[manager] = VersionedSet(FieldSet.of(_REPLICAS), SCALE.api_version, owned.applied)
            found.times[manager] = managed.times.get(manager)
    return encode(found)


def to_parent(
    entries: list[JSONObject] | None, scale_entries: list[JSONObject] | None, replicas: Replicas, api_version: str
) -> list[JSONObject]:
    """The object's managedFields, whose own were ``entries``, after its Scale was written; ``api_version`` is the request's.

    Raises:
        InvalidEntries
    """
    managed, scale, found = decode(entries), decode(scale_entries).fields, Managed()
    for manager, owned in managed.fields.items():
        if owned.api_version not in replicas:
            continue  # a version that is no more
        path = replicas[owned.api_version]
        if path is None or path not in owned.set or scale.pop(manager, None) is not None:
            kept = owned
        else:
            kept = owned._replace(set=owned.set - FieldSet.of(path))
            if not kept.set:
                continue
        found.fields[manager], found.times[manager] = kept, managed.times.get(manager)
    path = replicas.get(api_version)
    for manager, owned in scale.items():
        if path is not None and _REPLICAS in owned.set:
            found.fields[manager] = VersionedSet(FieldSet.of(path), api_version, owned.applied)
            found.times[manager] = managed.times.get(manager)
    return encode(found)
