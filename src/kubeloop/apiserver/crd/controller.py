"""The CRD controller: grants names, sets conditions, registers resources, and deletes instances of a deleted definition.

Upstream has several controllers (naming, establishing, finalizing) and handlers for this; here one task handles the changes in order.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from kubeloop.apiserver.crd.conversion import Post, call_no_webhook
from kubeloop.apiserver.crd.definition import CLEANUP_FINALIZER, accepted_names, group_of, is_served, is_true, set_condition
from kubeloop.apiserver.crd.naming import names_in_use, update_names
from kubeloop.apiserver.ownership import SERVER, Owners
from kubeloop.apiserver.registry.objects import Objects, PreconditionFailed, StoredObject
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.registry.resource_controller import ResourceController
from kubeloop.apiserver.storage.protocol import KeyValue, prefix_end
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.endpoints.encoding import decode
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.tasks import SupervisedTask, Supervisor, close_all
from kubeloop.timing import Backoff, Clock
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.apiserver.crd")

DEFINITIONS: Final = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")

#: Deletes one instance as a DELETE request would, with respect to finalizers: resource, namespace, name.
DeleteInstance = Callable[[ServedResource, str, str], Awaitable[None]]


class DefinitionController:
    """Follows the stored CustomResourceDefinitions and updates the registry.

    Guarantees
        When a definition shows ``Established: True``, its resources are in the registry. When it is gone, its resources are not.
        A definition that is being deleted is removed after its last instance.

    Not guaranteed
        The resources of a new definition are not served at once: as in Kubernetes, there is a short delay. Wait for ``Established``.
    """

    def __init__(
        self, objects: Objects, changes: WatchCache, registry: Registry, clock: Clock, delete: DeleteInstance, post: Post = call_no_webhook
    ) -> None:
        """Create a controller that is not started.

        Args:
            objects: The stored objects.
            changes: The watch cache of the server.
            registry: The registry to update.
            clock: The clock for conditions and retries.
            delete: Deletes one instance of a custom resource.
            post: Sends conversion reviews to webhooks.
        """
        self._objects = objects
        self._changes = changes
        self._registry = registry
        self._clock = clock
        self._delete = delete
        self._owners = Owners(registry, clock)
        self._post = post
        self._definitions: dict[str, StoredObject] = {}
        #: Key of a definition -> the part of it that decides whether its resources must be registered again.
        self._registered: dict[str, tuple[Any, list[GroupVersionResource]]] = {}
        self._removals: dict[str, SupervisedTask] = {}
        #: Keys of definitions to process again at an unchanged revision: the last attempt failed, or names became free.
        self._unsettled: set[str] = set()
        self._controller: ResourceController | None = None
        self._tasks: Supervisor | None = None

    async def start(self, tasks: Supervisor) -> None:
        """Register the stored definitions, then follow changes until ``stop``. The watch cache must have been started.

        Raises:
            StorageFailed: The definitions cannot be read.
        """
        self._tasks = tasks
        prefix = self._resource.storage_prefix
        self._controller = ResourceController("crd-controller", prefix, self._objects.storage, self._changes, self._sync)
        await self._controller.start(tasks)

    async def stop(self) -> None:
        """Stop following changes."""
        steps = [] if self._controller is None else [self._controller.stop]
        await close_all(*steps, *[task.stop for task in self._removals.values()])

    @property
    def _resource(self) -> ServedResource:
        result = self._registry.get(DEFINITIONS)
        if result is None:
            raise LookupError(f"the registry does not serve {DEFINITIONS}")
        return result

    async def _sync(self, key: str, kv: KeyValue | None) -> None:
        if kv is None:
            self._gone(key)
            return
        stored = StoredObject(kv, self._objects.tree(self._resource, kv))
        before = self._definitions.get(key)
        if before is not None and before.revision >= kv.mod_revision and key not in self._unsettled:
            return
        self._unsettled.add(key)
        self._definitions[key] = stored
        if stored.obj["metadata"].get("deletionTimestamp"):
            self._remove_soon(key, stored.obj)
        else:
            await self._settle(key)
        self._unsettled.discard(key)

    def _remove_soon(self, key: str, crd: JSONObject) -> None:
        if CLEANUP_FINALIZER not in (crd["metadata"].get("finalizers") or ()):
            self._unregister(key)  # no instances left, but another finalizer remains on the definition
            return
        self._register(key, crd)
        removal = self._removals.get(key)
        if removal is None or removal.done:
            assert self._tasks is not None
            self._removals[key] = self._tasks.start(partial(self._remove, key), name="crd-finalizer")

    def _gone(self, key: str) -> None:
        before = self._definitions.pop(key, None)
        self._unsettled.discard(key)
        self._unregister(key)
        if before is not None:
            # Other definitions may get the names of this one now.
            self._settle_others(key, group_of(before.obj))

    def _others(self, key: str, group: str) -> list[str]:
        return [other for other, stored in self._definitions.items() if other != key and group_of(stored.obj) == group]

    def _settle_others(self, key: str, group: str) -> None:
        assert self._controller is not None
        for other in self._others(key, group):
            self._unsettled.add(other)
            self._controller.enqueue(other)

    async def _settle(self, key: str) -> None:
        stored = self._definitions[key]
        group = group_of(stored.obj)
        taken = names_in_use(self._definitions[other].obj for other in self._others(key, group))
        after = update_names(stored.obj, taken, self._clock.wall())
        if after is None:
            self._register(key, stored.obj)
        elif await self._write(key, after, stored):
            # The registry changes together with the status: not earlier, and before a client can see Established and request the resource.
            self._register(key, after)
            if accepted_names(after) != accepted_names(stored.obj):
                self._settle_others(key, group)

    async def _write(self, key: str, crd: JSONObject, stored: StoredObject) -> bool:
        """Write a definition. Return False after a conflict; an event for the other write follows."""
        self._own(crd, stored)
        try:
            self._definitions[key] = await self._objects.write(self._resource, crd, expected=stored.revision)
        except PreconditionFailed:
            return False
        return True

    def _own(self, crd: JSONObject, stored: StoredObject) -> None:
        """Set the managedFields of the status, which the server owns."""
        self._owners.updated(self._owners.scope(self._resource, "status"), stored.obj, crd, SERVER)

    def _register(self, key: str, crd: JSONObject) -> None:
        if not is_served(crd):
            self._unregister(key)
            return
        mark = (crd["metadata"]["uid"], crd["spec"], accepted_names(crd), bool(crd["metadata"].get("deletionTimestamp")))
        known = self._registered.get(key)
        if known is not None and known[0] == mark:
            return
        from kubeloop.apiserver.crd.served import (
            served_resources,
        )  # Imported with the first definition, because custom resources need many modules.

        served = [one for one in served_resources(crd, self._post) if self._free(one.gvr)]
        retained = {one.gvr for one in served}
        for gvr in known[1] if known else []:
            if gvr not in retained:
                self._registry.remove(gvr)
        for one in served:
            self._registry.replace(one)
        self._objects.clear_cache()
        self._registered[key] = (copy.deepcopy(mark), [one.gvr for one in served])

    def _free(self, gvr: GroupVersionResource) -> bool:
        """Return whether no built-in resource has this name. A custom resource never replaces a built-in one."""
        there = self._registry.get(gvr)
        return there is None or there.custom

    def _unregister(self, key: str) -> None:
        known = self._registered.pop(key, None)
        for gvr in known[1] if known else []:
            self._registry.remove(gvr)

    async def _remove(self, key: str) -> None:
        """Delete all instances, wait until they are gone, and remove the finalizer of the definition. Retry failures with back-off."""
        backoff = Backoff(initial=1.0, cap=60.0, clock=self._clock)
        in_progress = ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
        await self._condition(key, *in_progress)
        while True:
            try:
                await self._remove_instances(key)
                break
            except ApiError as exc:
                _LOG.warning("instances of %s cannot be deleted: %s", key.rpartition("/")[2], exc)
                step = "list instances" if exc.status.code == 429 else "issue all deletes"
                await self._condition(key, "True", "InstanceDeletionFailed", f"could not {step}: {exc.status.message}")
                await self._clock.sleep(backoff.next())
        await self._release(key)
        self._removals.pop(key, None)

    async def _remove_instances(self, key: str) -> None:
        """Delete all instances, including instances that are created during the deletion. Return when none is left."""
        stored = self._definitions.get(key)
        if stored is None or not is_true(stored.obj, "Established"):
            return
        resource = _stored_version(stored.obj, self._post)
        await self._objects.require_defined_versions(resource)
        prefix = resource.storage_prefix
        subscription = self._changes.subscribe(prefix)
        try:
            requested: set[str] = set()
            while True:
                value = await self._objects.storage.range(prefix, prefix_end(prefix))
                left = value.items
                if not left:
                    # Watches end when the definition is removed, so they must have sent the deletions of the instances by then.
                    await self._changes.wait_until(value.revision)
                    return
                for kv in left:
                    if kv.key not in requested:
                        requested.add(kv.key)
                        metadata = decode(kv.value)["metadata"]
                        await self._delete(resource, metadata.get("namespace", ""), metadata["name"])
                if (await self._objects.storage.range(prefix, prefix_end(prefix), limit=1)).items:
                    await subscription.receive()
        finally:
            subscription.close()

    async def _condition(self, key: str, status: str, reason: str, message: str) -> None:
        while (stored := await self._read(key)) is not None:
            crd = copy.deepcopy(stored.obj)
            set_condition(crd, "Terminating", status, reason, message, self._clock.wall())
            if crd == stored.obj or await self._write(key, crd, stored):
                return

    async def _release(self, key: str) -> None:
        """Remove the finalizer; if it is the last one, delete the definition."""
        while (stored := await self._read(key)) is not None:
            crd = copy.deepcopy(stored.obj)
            metadata = crd["metadata"]
            metadata["finalizers"] = [name for name in metadata.get("finalizers") or () if name != CLEANUP_FINALIZER]
            if is_true(stored.obj, "Established"):
                outcome = ("False", "InstanceDeletionCompleted", "removed all instances")
            else:
                outcome = ("False", "NeverEstablished", "resource was never established")
            set_condition(crd, "Terminating", *outcome, self._clock.wall())
            try:
                # A client that sees the definition gone must also see its resources gone.
                self._unregister(key)
                if metadata["finalizers"]:
                    self._own(crd, stored)
                    self._definitions[key] = await self._objects.write(self._resource, crd, expected=stored.revision)
                else:
                    await self._objects.remove(stored)
            except PreconditionFailed:
                continue
            return

    async def _read(self, key: str) -> StoredObject | None:
        """Return the newest stored definition, or None if it does not exist any more."""
        kv, _ = await self._objects.storage.get(key)
        if kv is None:
            return None
        stored = self._definitions[key] = StoredObject(kv, self._objects.tree(self._resource, kv))
        return stored


def _stored_version(crd: JSONObject, post: Post) -> ServedResource:
    """Return the resource in its storage version, which needs no conversion, even if that version is not served."""
    from kubeloop.apiserver.crd.served import served_resources

    shown = copy.deepcopy(crd)
    for version in shown["spec"]["versions"]:
        version["served"] = bool(version.get("storage"))
    return served_resources(shown, post)[0]
