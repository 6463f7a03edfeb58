"""The metadata of every object, list and owner reference.

Source: k8s.io/apimachinery pkg/apis/meta/v1/types.go.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from kubeloop.meta.model import Documented, Model
from kubeloop.meta.time import Time

_NO_FIELDS = msgspec.Raw(b"{}")


class OwnerReference(Model):
    """Names an owner in the same namespace (or cluster-scoped). At most one owner of an object is its ``controller``.

    >>> settings = await client.create(ConfigMap(metadata=ObjectMeta(name="settings")))
    >>> owner = OwnerReference(api_version="v1", kind="ConfigMap", name="settings", uid=settings.metadata.uid)
    >>> secret = Secret(metadata=ObjectMeta(name="token", owner_references=[owner]))

    https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#ownerreference-v1-meta
    """

    api_version: str = ""
    """Wire name ``apiVersion``, required. Group and version of the owner's kind, such as ``apps/v1``."""
    kind: str = ""
    """Wire name ``kind``, required. Kind of the owner, such as ``ReplicaSet``."""
    name: str = ""
    """Wire name ``name``, required. Name of the owner."""
    uid: str = ""
    """Wire name ``uid``, required. The owner's ``metadata.uid``: an object of the same name that was created later is another owner."""
    controller: bool | None = None
    """Wire name ``controller``, optional; None if absent. True for the one owner that manages this object."""
    block_owner_deletion: bool | None = None
    """Wire name ``blockOwnerDeletion``, optional; None if absent. True: a foreground deletion of the owner waits for this object."""


class ManagedFieldsEntry(Model):
    """The fields that one manager owns. ``fields_v1`` stays JSON until ``fields()`` decodes it: it is a third of a typical object.

    >>> settings = await client.create(ConfigMap(metadata=ObjectMeta(name="settings"), data={"color": "blue"}))
    >>> settings.metadata.managed_fields[0].fields()["f:data"]
    {'.': {}, 'f:color': {}}

    https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#managedfieldsentry-v1-meta
    """

    manager: str = ""
    """Wire name ``manager``, optional; empty if absent. Name of the program that owns the fields, such as ``kubectl``."""
    operation: str = ""
    """Wire name ``operation``, optional; empty if absent. One of ``Apply``, ``Update``."""
    api_version: str = ""
    """Wire name ``apiVersion``, optional; empty if absent. The version in which the fields are named, such as ``apps/v1``."""
    time: Time | None = None
    """Wire name ``time``, optional; None if absent. When the set of fields, or one of their values, last changed."""
    fields_type: str = ""
    """Wire name ``fieldsType``, optional; empty if absent. Always ``FieldsV1``."""
    fields_v1: msgspec.Raw = msgspec.field(default=_NO_FIELDS, name="fieldsV1")
    """Wire name ``fieldsV1``, optional; empty if absent. The owned fields as JSON; ``fields()`` reads it."""
    subresource: str = ""
    """Wire name ``subresource``, optional; empty if absent. The subresource that was written, such as ``status``; empty for the object
    itself."""

    def fields(self) -> dict[str, Any]:
        """Return the owned fields as a new tree (``{"f:spec": {...}}``)."""
        return msgspec.json.decode(self.fields_v1, type=dict[str, Any])


class ObjectMeta(Documented, Model):
    """Name, version, labels and owners of an object. ``resource_version`` is opaque except for equality and order within one resource.

    >>> metadata = ObjectMeta(namespace="shop", name="web-0", labels={"app": "web"})
    >>> metadata.labels["app"]
    'web'

    https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#objectmeta-v1-meta
    """

    __list_keys__: ClassVar[dict[str, tuple[str, ...]]] = {"ownerReferences": ("uid",)}

    name: str = ""
    """Wire name ``name``, optional; empty if absent. Unique among the objects of one kind in one namespace. It cannot change."""
    generate_name: str = ""
    """Wire name ``generateName``, optional; empty if absent. The server makes a name of this prefix and a random suffix if ``name`` is
    empty."""
    namespace: str = ""
    """Wire name ``namespace``, optional; empty if absent. Empty for a cluster-scoped object. It cannot change."""
    uid: str = ""
    """Wire name ``uid``, optional; empty if absent. Set by the server: unique in place and time, also after an object of the same name
    was deleted."""
    resource_version: str = ""
    """Wire name ``resourceVersion``, optional; empty if absent. Set by the server, and new after each change. An update that carries an
    old one is refused as a conflict."""
    generation: int = 0
    """Wire name ``generation``, optional; 0 if absent. Set by the server: it counts the changes of the desired state, so a change of the
    status does not raise it."""
    creation_timestamp: Time | None = None
    """Wire name ``creationTimestamp``, optional; None if absent. Set by the server: when the object was created."""
    deletion_timestamp: Time | None = None
    """Wire name ``deletionTimestamp``, optional; None if absent. Set by the server when a deletion is requested. The object goes as soon
    as ``finalizers`` is empty."""
    deletion_grace_period_seconds: int | None = None
    """Wire name ``deletionGracePeriodSeconds``, optional; None if absent. Set by the server together with ``deletion_timestamp``: seconds
    that the object has to end."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Wire name ``labels``, optional; empty if absent. Short values that selectors match."""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    """Wire name ``annotations``, optional; empty if absent. Values for programs and people, of any text; no selector matches them."""
    owner_references: list[OwnerReference] = msgspec.field(default_factory=list)
    """Wire name ``ownerReferences``, optional; empty if absent. The garbage collector deletes the object when all of them are gone. The
    key of an item is its ``uid``."""
    finalizers: list[str] = msgspec.field(default_factory=list)
    """Wire name ``finalizers``, optional; empty if absent. Names that must be removed, each by its controller, before the server removes
    a deleted object."""
    managed_fields: list[ManagedFieldsEntry] = msgspec.field(default_factory=list)
    """Wire name ``managedFields``, optional; empty if absent. Which field belongs to which program, kept by the server for server-side
    apply."""
    self_link: str = ""
    """Wire name ``selfLink``, optional; empty if absent. Servers since Kubernetes 1.20 leave it empty."""


class ShardInfo(Model):
    """Describes the shard that a list contains: the selector that chose its objects.

    >>> ShardInfo(selector="shard=1").selector
    'shard=1'

    https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#shardinfo-v1-meta
    """

    selector: str = ""
    """Wire name ``selector``, required. The shard selector of the request."""


class ListMeta(Model):
    """Metadata of a list: the version to watch from, and the token of the next page.

    >>> pods = await client.list(Pod)
    >>> pods.metadata.continue_
    ''

    https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/#listmeta-v1-meta
    """

    resource_version: str = ""
    """Wire name ``resourceVersion``, optional; empty if absent. The version of the list, from which a watch can start."""
    continue_: str = msgspec.field(default="", name="continue")
    """Wire name ``continue``, optional; empty if absent. Token for the next page; empty on the last page."""
    remaining_item_count: int | None = None
    """Wire name ``remainingItemCount``, optional; None if absent. How many items follow this page. None if there is none, or the server
    did not count."""
    shard_info: ShardInfo | None = None
    """Wire name ``shardInfo``, optional; None if absent. The part of the objects that the list holds; None for a whole list. Alpha:
    servers send it if their feature gate ``ShardedListAndWatch`` is on."""
    self_link: str = ""
    """Wire name ``selfLink``, optional; empty if absent. Servers since Kubernetes 1.20 leave it empty."""
