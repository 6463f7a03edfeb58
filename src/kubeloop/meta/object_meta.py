"""Metadata that every object, list and owner reference carries.

Source: k8s.io/apimachinery pkg/apis/meta/v1/types.go.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from kubeloop.meta.model import Documented, Model
from kubeloop.meta.time import Time

_NO_FIELDS = msgspec.Raw(b"{}")


class OwnerReference(Model):
    """Names an owner in the same namespace (or cluster-scoped). At most one owner of an object is its ``controller``."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFieldsEntry(Model):
    """Which fields one manager owns. ``fields_v1`` stays JSON until ``fields()`` reads it: it is a third of a typical object."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    time: Time | None = None
    fields_type: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=_NO_FIELDS, name="fieldsV1")
    subresource: str = ""

    def fields(self) -> dict[str, Any]:
        """The owned fields as a fresh tree (``{"f:spec": {...}}``)."""
        return msgspec.json.decode(self.fields_v1, type=dict[str, Any])


class ObjectMeta(Documented, Model):
    """Name, version, labels and owners of an object. ``resource_version`` is opaque except for equality and order in one resource."""

    __list_keys__: ClassVar[dict[str, tuple[str, ...]]] = {"ownerReferences": ("uid",)}

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: list[OwnerReference] = msgspec.field(default_factory=list)
    finalizers: list[str] = msgspec.field(default_factory=list)
    managed_fields: list[ManagedFieldsEntry] = msgspec.field(default_factory=list)
    self_link: str = ""


class ListMeta(Model):
    """Metadata of a list: the version to watch from, and where to go on reading."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None
    self_link: str = ""
