"""Keeps an APIService for each group and version of the CustomResourceDefinitions, and takes it away with the last of them.

Source: k8s.io/kubernetes pkg/controlplane/controller/crdregistration; kube-aggregator pkg/controllers/autoregister.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from typing import Any, Final

from kubeloop.apiserver.aggregation.registered import MANAGED, OWN_GROUP
from kubeloop.apiserver.object_meta import fill_new, timestamp
from kubeloop.apiserver.objects import Objects, StaleWrite
from kubeloop.apiserver.ownership import SERVER, Owners
from kubeloop.apiserver.provisioning.api_services import available
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.resource import ServedResource
from kubeloop.apiserver.storage import KeyValue, prefix_end
from kubeloop.apiserver.watch_cache import WatchCache, WatchEvent
from kubeloop.meta.errors import KubeloopError
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.timing import Clock

_LOG = logging.getLogger(__name__)

JSONObject = dict[str, Any]

DEFINITIONS: Final = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
_API_SERVICES: Final = GroupVersionResource(OWN_GROUP, "v1", "apiservices")
#: Of groups of custom resources, which come after Kubernetes' own.
GROUP_PRIORITY: Final = 1000
VERSION_PRIORITY: Final = 100


class Autoregister:
    """One task. What it made it keeps as it should be; what others made under the same name is theirs."""

    def __init__(self, registry: Registry, objects: Objects, owners: Owners, changes: WatchCache, clock: Clock) -> None:
        self._registry = registry
        self._objects = objects
        self._owners = owners
        self._changes = changes
        self._clock = clock
        #: By key of a definition, the (group, version)s that it serves.
        self._served: dict[str, frozenset[tuple[str, str]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register what storage holds, then follow changes until ``stop``. The watch cache must have been started."""
        definitions, services = self._resource(DEFINITIONS), self._resource(_API_SERVICES)
        subscriptions = [self._changes.subscribe(one.storage_prefix) for one in (definitions, services)]
        found = await self._objects.storage.range(definitions.storage_prefix, prefix_end(definitions.storage_prefix))
        for kv in found.items:
            self._served[kv.key] = self._versions(definitions, kv)
        for one in sorted(self._wanted()):
            await self._settle(*one)
        for obj in await self._objects.all(services):
            if _is_kept(obj):
                await self._settle_named(obj["metadata"]["name"])  # of definitions that went while the server was down

        async def follow(which: int) -> None:
            try:
                while events := await subscriptions[which].take():
                    for event in events:
                        with contextlib.suppress(StaleWrite):
                            await (self._defined if which == 0 else self._service_changed)(event)
            finally:
                subscriptions[which].close()

        async def both() -> None:
            ways = [asyncio.ensure_future(follow(which)) for which in (0, 1)]
            try:
                await asyncio.gather(*ways)
            except KubeloopError:
                _LOG.exception("API services of custom resources are no longer kept")
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)

        self._task = asyncio.create_task(both(), name="API services of custom resources")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _wanted(self) -> set[tuple[str, str]]:
        return {one for served in self._served.values() for one in served}

    def _versions(self, resource: ServedResource, kv: KeyValue) -> frozenset[tuple[str, str]]:
        spec = self._objects.tree(resource, kv)["spec"]
        return frozenset((spec["group"], version["name"]) for version in spec.get("versions") or () if version.get("served"))

    async def _defined(self, event: WatchEvent) -> None:
        before = self._served.get(event.key, frozenset())
        if event.event.value is None:
            self._served.pop(event.key, None)
            after: frozenset[tuple[str, str]] = frozenset()
        else:
            after = self._served[event.key] = self._versions(self._resource(DEFINITIONS), event.current())
        for one in sorted(before | after):
            await self._settle(*one)

    async def _service_changed(self, event: WatchEvent) -> None:
        """Whoever deletes or changes what is kept finds it there again."""
        await self._settle_named(event.key.rpartition("/")[2])

    async def _settle_named(self, name: str) -> None:
        version, _, group = name.partition(".")
        await self._settle(group, version)

    async def _settle(self, group: str, version: str) -> None:
        """Make the stored APIService what it is to be."""
        resource = self._resource(_API_SERVICES)
        stored = await self._objects.get(resource, "", f"{version}.{group}")
        wanted = (group, version) in self._wanted()
        if stored is None:
            if wanted:
                await self._create(resource, group, version)
            return
        if not _is_kept(stored.obj):
            return
        with contextlib.suppress(StaleWrite):  # somebody wrote first; the change that brings their state is on its way
            if not wanted:
                if not stored.obj["metadata"].get("finalizers"):
                    await self._objects.remove(stored)
            elif stored.obj["spec"] != _spec(group, version):
                obj = copy.deepcopy(stored.obj)
                obj["spec"] = _spec(group, version)
                self._owners.updated(self._owners.scope(resource, ""), stored.obj, obj, SERVER)
                await self._objects.write(resource, obj, expected=stored.revision)

    async def _create(self, resource: ServedResource, group: str, version: str) -> None:
        now = self._clock.wall()
        obj: JSONObject = {
            "kind": resource.kind,
            "apiVersion": resource.gvk.api_version,
            "metadata": {"name": f"{version}.{group}", "labels": {MANAGED: "true"}},
            "spec": _spec(group, version),
            "status": {"conditions": [available(timestamp(now))]},
        }
        fill_new(obj["metadata"], now)
        scope = self._owners.scope(resource, "")
        self._owners.updated(scope, scope.empty, obj, SERVER)
        with contextlib.suppress(StaleWrite):
            await self._objects.write(resource, obj, expected=0)

    def _resource(self, gvr: GroupVersionResource) -> ServedResource:
        found = self._registry.get(gvr)
        if found is None:
            raise LookupError(f"the registry does not serve {gvr}")
        return found


def _is_kept(obj: JSONObject) -> bool:
    return bool((obj["metadata"].get("labels") or {}).get(MANAGED) == "true")


def _spec(group: str, version: str) -> JSONObject:
    return {"group": group, "version": version, "groupPriorityMinimum": GROUP_PRIORITY, "versionPriority": VERSION_PRIORITY}
