"""Garbage collector: deletes objects whose owners are gone, and performs orphaning and foreground deletion.

``ownership_graph`` stores the references; this module decides and acts. It reads owners from the server before it deletes anything.

Source: Kubernetes pkg/controller/garbagecollector/garbagecollector.go; documentation, "Garbage Collection".
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from kubeloop.cache import EventType, Head, Informer, InformerEvent, InformerStopped, Registration
from kubeloop.client import ALL_NAMESPACES, Client, DeleteOptions, Propagation
from kubeloop.client.discovery import ApiResource
from kubeloop.controller import Result, RunnableContext, RunnerStats
from kubeloop.controller.events import EventRecorder
from kubeloop.controller.runner.runnable import ReconcileCounts
from kubeloop.controller.runner.workers import Workers
from kubeloop.controlplane.controller_utils import ComponentEvents
from kubeloop.controlplane.garbage_collection.ownership_graph import FOREGROUND, ORPHAN, Item, Node, OwnerEdge, OwnershipGraph
from kubeloop.meta import (
    Conflict,
    GroupVersionKind,
    Invalid,
    KubeloopError,
    NotFound,
    ObjectMeta,
    PartialObject,
    Resource,
    UnknownKind,
    Unstructured,
)
from kubeloop.tasks import Supervisor
from kubeloop.timing import Backoff
from kubeloop.transport import logger_with_context
from kubeloop.workqueue import ExponentialLimiter, QueueStats, WorkQueue

_LOG = logger_with_context("kubeloop.controlplane")

_WORKERS = 10
_COMPONENT = "garbage-collector-controller"
#: Resources that are neither owners nor collected, and are the most frequent objects of a cluster (upstream ignores them too).
_IGNORED = {("", "events"), ("events.k8s.io", "events")}
#: Seconds to wait until discovery shows the kind of an established definition.
_DISCOVERY = 10.0
_DEFINITION = GroupVersionKind("apiextensions.k8s.io", "v1", "CustomResourceDefinition")


class _Watched(NamedTuple):
    """A watched kind: its handler and informer. ``resource`` is its resource and group, such as ``foos.example.com``."""

    registration: Registration[Resource]
    resource: str
    informer: Informer[Resource]


class _Finalizers(msgspec.Struct):
    finalizers: list[str] | None = None


class _Metadata(msgspec.Struct):
    metadata: _Finalizers = msgspec.field(default_factory=_Finalizers)


class GarbageCollector:
    """Deletes objects whose owners are gone.

    It watches every kind that can be listed, watched and deleted; custom kinds as soon as their definition is established.

    Guarantees:
        An object is deleted only if each of its owners is known to be deleted, or is in foreground deletion and waits for the object. Other
        owners are read from the server and compared by uid. The deletion has the uid and resource version of the checked object as
        preconditions.

    Args:
        classes: Classes with which to watch their kinds, so that informers are shared with the controllers that use these classes.
    """

    needs_leader = True
    warm_up = False

    def __init__(self, classes: Iterable[type[Resource]] = ()) -> None:
        self._classes: Mapping[GroupVersionKind, type[Resource]] = {cls.__kind_info__.gvk: cls for cls in classes}
        self._graph = OwnershipGraph()
        self._watched: dict[GroupVersionKind, _Watched] = {}
        self._definitions: Registration[Resource] | None = None
        self._leaving: Supervisor | None = None
        self._closing = False
        self._context: RunnableContext | None = None
        self._queue: WorkQueue[Item] | None = None
        self._workers: Workers[Item] | None = None
        self._events: EventRecorder | None = None
        self._last_change = ""

    @property
    def name(self) -> str:
        return "garbage-collector"

    @property
    def stats(self) -> RunnerStats:
        queue = self._queue.stats if self._queue is not None else QueueStats(0, 0, 0, 0, 0)
        counts = self._workers.counts if self._workers is not None else ReconcileCounts()
        return RunnerStats(self.name, _WORKERS, queue, counts, self._last_change)

    @property
    def tasks(self) -> Supervisor | None:
        """The supervisor of the collector's background tasks; None before ``connect``."""
        return self._leaving

    async def connect(self, context: RunnableContext) -> None:
        self._context = context
        self._closing = False
        clock = context.clock
        self._queue = WorkQueue(ExponentialLimiter(), clock)
        self._events = EventRecorder(context.client, _COMPONENT, sinks=[ComponentEvents()], clock=clock)
        cluster = context.client.cluster
        self._workers = Workers(self.name, self._attend, self._queue, _WORKERS, cluster=cluster, clock=clock)
        await self._watch_everything()
        definitions = context.informers.for_kind(self._class_of(_DEFINITION, "customresourcedefinitions", False), namespace=ALL_NAMESPACES)
        changed = self._definition_changed
        self._definitions = definitions.on_event(added=changed, updated=changed, deleted=changed, name=f"{self.name} definitions")
        self._leaving = Supervisor(clock, _LOG)
        self._leaving.start(self._leave_what_is_gone, name=f"{self.name} stops informers of removed kinds")

    async def synced(self, timeout: float) -> None:
        for watched in list(self._watched.values()):
            with contextlib.suppress(InformerStopped):  # its definition was deleted meanwhile
                await watched.registration.wait_synced(timeout)

    async def run(self) -> None:
        # A definition established after discovery was read, but before the informer of definitions had its first list, causes no change
        # event. Reading discovery again after that list closes the gap.
        await self._until_known(self._look)
        if self._workers is not None and self._events is not None:
            async with self._events:
                await self._workers.run()

    def stop(self) -> None:
        if self._workers is not None:
            self._workers.stop()

    async def close(self) -> None:
        self._closing = True
        if self._definitions is not None:
            self._definitions.remove()
        if self._leaving is not None:
            await self._leaving.stop()
        # No iteration over a copy: a handler of definitions that still runs may stop informers meanwhile.
        while self._watched:
            await self._unwatch(next(iter(self._watched)))
        if self._queue is not None:
            self._queue.shut_down()

    # ------------------------------------------------------------------------------------------------------------ watched kinds

    async def _watch_everything(self, but: str = "") -> None:
        """Watch all served kinds that are not watched yet, except the removed resource ``but``, which discovery may still show."""
        for resource in await self._client.mapper.resources():
            if self._is_collectable(resource) and str(resource.gvr.group_resource) != but:
                self._watch(resource)

    async def _served(self) -> set[GroupVersionKind]:
        """Return the kinds that the server serves now, without cached discovery."""
        self._client.mapper.forget()
        return {resource.gvk for resource in await self._client.mapper.resources()}

    def _is_collectable(self, resource: ApiResource) -> bool:
        if (resource.gvr.group, resource.gvr.resource) in _IGNORED or not {"list", "watch", "delete"} <= set(resource.verbs):
            return False
        # One version of a resource is enough: all versions show the same objects. The preferred one is first.
        return not any(gvk.group == resource.gvk.group and gvk.kind == resource.gvk.kind for gvk in self._watched)

    def _watch(self, resource: ApiResource) -> None:
        if self._closing:
            return
        around, gvk, plural = self._around, resource.gvk, resource.gvr.resource
        cls = self._class_of(gvk, plural, resource.namespaced)
        informer = around.informers.for_kind(cls, namespace=around.namespace or ALL_NAMESPACES)
        registration = informer.on_event(added=self._seen, updated=self._seen, deleted=self._seen, name=f"{self.name} {plural}")
        self._watched[gvk] = _Watched(registration, str(resource.gvr.group_resource), informer)

    async def _unwatch(self, gvk: GroupVersionKind) -> None:
        watched = self._watched.pop(gvk, None)
        if watched is None:
            return
        watched.registration.remove()
        if gvk not in self._classes:  # Other controllers share the informers of these classes.
            await self._around.informers.remove(watched.informer)

    async def _leave_what_is_gone(self) -> None:
        """Stop the informers of removed kinds until all informers have their first list.

        A definition may be deleted while lagging discovery still shows its kind. No event reports such a removal, and the informer would
        wait for the first list of the kind forever.
        """
        clock = self._around.clock
        backoff = Backoff(initial=1.0, cap=10.0, clock=clock)
        while not all(watched.informer.synced for watched in self._watched.values()):
            await clock.sleep(backoff.next())
            try:
                served = await self._served()
            except KubeloopError as error:
                _LOG.warning("cannot read the served kinds: %s; retrying", error)
                continue
            for gvk, watched in list(self._watched.items()):
                if gvk not in served and not watched.informer.synced and self._watched.get(gvk) is watched:
                    await self._unwatch(gvk)

    async def _definition_changed(self, event: InformerEvent[Resource]) -> None:
        """Read discovery again after a CustomResourceDefinition was added, changed or removed."""
        if event.initial or event.type is EventType.RESYNC:
            return  # ``run`` reads discovery once the informer of definitions has its first list
        await self._until_known(lambda: self._look_at(event))

    async def _until_known(self, look: Callable[[], Awaitable[bool]]) -> None:
        """Call ``look``, which reads discovery, until it returns true or 10 seconds are over; errors of the server are retried."""
        clock = self._around.clock
        backoff = Backoff(initial=0.1, cap=5.0, clock=clock)
        until = clock.now() + _DISCOVERY
        while not self._closing:
            try:
                if await look() or clock.now() >= until:
                    return
            except KubeloopError as error:
                _LOG.warning("cannot read the served kinds: %s; retrying", error)
            await clock.sleep(backoff.next())

    async def _look(self) -> bool:
        self._client.mapper.forget()
        await self._watch_everything()
        return True

    async def _look_at(self, event: InformerEvent[Resource]) -> bool:
        """Update the watched kinds after a change of a definition.

        Return False if the definition is established but discovery does not show its kind yet.
        """
        name = event.head.name
        deleted = event.type is EventType.DELETED
        served = await self._served()
        gone = event.object if deleted else event.old_object if event.old is not None and event.old.uid != event.head.uid else None
        for gvk, watched in list(self._watched.items()):
            if watched.resource == name and (gone is not None or gvk not in served):
                await self._unwatch(gvk)
        if isinstance(gone, Unstructured):
            # The server deletes all objects of a kind with its definition, and the watch may have ended before it reported that.
            for uid in self._graph.uids(gone.get("spec", "group", default=""), gone.get("spec", "names", "kind", default="")):
                self._is_gone(uid)
        await self._watch_everything(but=name if deleted else "")
        return deleted or not _is_established(event.object) or any(watched.resource == name for watched in self._watched.values())

    def _class_of(self, gvk: GroupVersionKind, plural: str = "", namespaced: bool | None = None) -> type[Resource]:
        known = self._classes.get(gvk)
        if known is not None:
            return known
        return Unstructured.for_kind(gvk.api_version, gvk.kind, plural=plural or None, namespaced=namespaced)

    # ------------------------------------------------------------------------------------------------------------------ events

    def _seen(self, event: InformerEvent[Resource]) -> None:
        head = event.head
        if event.type is EventType.RESYNC:
            return
        if event.type is EventType.DELETED:
            look = self._graph.remove(head.uid)
        else:
            node = _node(head, event.view.kind)
            for dependent, owner in self._graph.invalid_references(node):
                self._report(dependent, owner)
            look = self._graph.put(node)
            if event.old is not None and event.old.uid != head.uid:
                look += self._graph.remove(event.old.uid)
        queue = self._queue
        if look and queue is not None:
            self._last_change = f"{event.view.kind.kind} {event.key} {event.type.value}"
            for item in look:
                queue.add(item)

    def _report(self, dependent: Item, owner: OwnerEdge) -> None:
        """Write an Event about a reference to an owner in another namespace."""
        place, cls = dependent.namespace, Unstructured.for_kind(dependent.api_version, dependent.kind)
        obj = cls(metadata=ObjectMeta(name=dependent.name, namespace=place, uid=dependent.uid))
        if self._events is not None:
            text = f'ownerRef {owner.in_namespace(place)} does not exist in namespace "{place}"'
            self._events.warning(obj, "OwnerRefInvalidNamespace", text)

    # ----------------------------------------------------------------------------------------------------------------- decisions

    async def _attend(self, item: Item) -> Result | None:
        node = self._graph.find(item.uid)
        if node is not None and node.deleting and not node.waits and not node.orphans:
            return None
        live = await self._read(item.api_version, item.kind, item.namespace, item.name)
        if live is None or live.metadata.uid != item.uid:
            self._is_gone(item.uid)
            return None
        metadata = live.metadata
        deleting = metadata.deletion_timestamp is not None
        if deleting and ORPHAN in metadata.finalizers:
            await self._orphan(item, live)
        elif deleting and FOREGROUND in metadata.finalizers:
            await self._foreground(item, live)
        elif not deleting and metadata.owner_references:
            await self._judge(item, live)
        return None

    async def _judge(self, item: Item, live: PartialObject) -> None:
        """Delete an object without remaining owners; remove owner references to missing owners while others remain."""
        gone: list[str] = []
        waiting: list[str] = []
        solid = False
        for reference in live.metadata.owner_references:
            owner = OwnerEdge(reference.api_version, reference.kind, reference.name, reference.uid)
            state = await self._state_of(owner, item.namespace)
            if state == "gone":
                gone.append(owner.uid)
            elif state == "waiting":
                waiting.append(owner.uid)
            else:
                solid = True
        if solid:
            if gone or waiting:
                await self._drop_owners(item, live, [*gone, *waiting])
            return
        if waiting and self._graph.dependents(item.uid):
            # An owner in foreground deletion expects that the dependents of its dependents are deleted first, too.
            await self._break_circles(item)
            await self._delete(item, live, "Foreground")
        elif ORPHAN in live.metadata.finalizers:
            await self._delete(item, live, "Orphan")
        elif FOREGROUND in live.metadata.finalizers:
            await self._delete(item, live, "Foreground")
        else:
            await self._delete(item, live, "Background")

    async def _state_of(self, owner: OwnerEdge, namespace: str) -> str:
        """Return the state of an owner: ``solid``, ``waiting`` (in foreground deletion, until its dependents are deleted) or ``gone``."""
        if not namespace and await self._is_namespaced(owner):
            # The namespace is unknown. Such a reference is never a reason to delete (upstream does not act on it either).
            return "solid"
        if self._graph.is_gone(owner.uid):
            return "gone"
        live = await self._read(owner.api_version, owner.kind, namespace, owner.name)
        if live is None or live.metadata.uid != owner.uid:
            self._graph.forget_owner(owner.uid)
            return "gone"
        waits = live.metadata.deletion_timestamp is not None and FOREGROUND in live.metadata.finalizers
        return "waiting" if waits else "solid"

    async def _foreground(self, item: Item, live: PartialObject) -> None:
        blocking = [dependent for dependent in self._graph.dependents(item.uid) if dependent.blocks(item.uid)]
        if not blocking:
            await self._drop_finalizer(item, live, FOREGROUND)
            return
        for dependent in blocking:
            if not dependent.deleting and self._queue is not None:
                self._queue.add(dependent.item)

    async def _orphan(self, item: Item, live: PartialObject) -> None:
        for dependent in self._graph.dependents(item.uid):
            current = await self._read_item(dependent.item)
            if current is not None:
                await self._drop_owners(dependent.item, current, [item.uid])
        await self._drop_finalizer(item, live, ORPHAN)

    async def _break_circles(self, item: Item) -> None:
        """Set blockOwnerDeletion of an object's owner references to false if a dependent waits for its own dependents.

        Otherwise a cycle of owner references in foreground deletion would block itself.
        """
        for dependent in self._graph.dependents(item.uid):
            if not dependent.waits:
                continue
            live = await self._read_item(item)
            if live is None:
                return
            references = [{**msgspec.to_builtins(reference), "blockOwnerDeletion": False} for reference in live.metadata.owner_references]
            await self._patch(item, {"metadata": _guard(live) | {"ownerReferences": references}})
            return

    # ------------------------------------------------------------------------------------------------------------------- actions

    async def _delete(self, item: Item, live: PartialObject, policy: Propagation) -> None:
        options = DeleteOptions(uid=item.uid, resource_version=live.metadata.resource_version)
        options = msgspec.structs.replace(options, propagation_policy=policy)
        cls = await self._served_class(item.api_version, item.kind)
        if cls is None:
            return
        try:
            await self._client.delete(cls, item.name, namespace=item.namespace or None, options=options)
        except NotFound:
            self._is_gone(item.uid)
        else:
            _LOG.info("deleted %s (%s): its owners are gone", item, policy.lower())

    async def _drop_owners(self, item: Item, live: PartialObject, uids: list[str]) -> None:
        stored = [msgspec.to_builtins(reference) for reference in live.metadata.owner_references if reference.uid not in uids]
        if len(stored) != len(live.metadata.owner_references):
            await self._patch(item, {"metadata": _guard(live) | {"ownerReferences": stored or None}})

    async def _drop_finalizer(self, item: Item, live: PartialObject, finalizer: str) -> None:
        stored = [one for one in live.metadata.finalizers if one != finalizer]
        if len(stored) != len(live.metadata.finalizers):
            await self._patch(item, {"metadata": _guard(live) | {"finalizers": stored}})

    async def _patch(self, item: Item, change: dict[str, object]) -> None:
        cls = await self._served_class(item.api_version, item.kind)
        if cls is None:
            return
        try:
            await self._client.patch(cls, item.name, change, type="merge", namespace=item.namespace or None)
        except NotFound:
            self._is_gone(item.uid)
        except Invalid as error:
            raise Conflict(error.status, error.request) from error

    async def _read_item(self, item: Item) -> PartialObject | None:
        live = await self._read(item.api_version, item.kind, item.namespace, item.name)
        return live if live is not None and live.metadata.uid == item.uid else None

    async def _read(self, api_version: str, kind: str, namespace: str, name: str) -> PartialObject | None:
        """Return an object's metadata from the server; None if the object does not exist.

        Args:
            api_version: Group and version of the kind.
            kind: The kind.
            namespace: Namespace of the object; ignored for a cluster-scoped kind. The namespace of an owner is that of its dependent.
            name: Name of the object.

        Raises:
            KubeloopError: The server does not serve the kind. The object may exist, so nothing may be deleted.
        """
        cls = await self._served_class(api_version, kind)
        if cls is None:
            raise KubeloopError(f"no kind {kind} is served in {api_version}: its objects cannot be looked up")
        mapping = await self._client.mapping(cls)
        try:
            return await self._client.get_metadata(cls, name, namespace=namespace if mapping.namespaced else None)
        except NotFound:
            return None

    async def _is_namespaced(self, owner: OwnerEdge) -> bool:
        cls = await self._served_class(owner.api_version, owner.kind)
        return cls is not None and (await self._client.mapping(cls)).namespaced

    async def _served_class(self, api_version: str, kind: str) -> type[Resource] | None:
        cls = self._class_of(GroupVersionKind.from_api_version(api_version, kind))
        try:
            await self._client.mapping(cls)
        except UnknownKind:
            return None
        return cls

    def _is_gone(self, uid: str) -> None:
        if self._queue is not None:
            for item in self._graph.remove(uid):
                self._queue.add(item)

    @property
    def _around(self) -> RunnableContext:
        if self._context is None:
            raise KubeloopError("the garbage collector is not connected; give it to a Manager")
        return self._context

    @property
    def _client(self) -> Client:
        return self._around.client


def _node(head: Head, kind: type[Resource]) -> Node:
    owners = tuple(
        OwnerEdge(owner.api_version, owner.kind, owner.name, owner.uid, bool(owner.block_owner_deletion)) for owner in head.owner_references
    )
    # Heads have no finalizers; they matter only for the few objects that are being deleted.
    finalizers = (_FINALIZERS.decode(head.document()).metadata.finalizers or ()) if head.deleting else ()
    return Node(
        Item(head.uid, kind.api_version, kind.kind, head.namespace, head.name), owners, deleting=head.deleting, finalizers=finalizers
    )


def _is_established(definition: Resource) -> bool:
    """Return whether a CustomResourceDefinition is established, has a served version and is not being deleted."""
    if not isinstance(definition, Unstructured) or definition.metadata.deletion_timestamp is not None:
        return False
    if not any(version.get("served") for version in definition.get("spec", "versions", default=None) or []):
        return False
    conditions = definition.get("status", "conditions", default=None) or []
    return any(one.get("type") == "Established" and one.get("status") == "True" for one in conditions)


def _guard(live: PartialObject) -> dict[str, object]:
    """Return metadata for a patch which the server refuses if the object was replaced or changed since it was read."""
    return {"uid": live.metadata.uid, "resourceVersion": live.metadata.resource_version}


_FINALIZERS = msgspec.json.Decoder(_Metadata)
