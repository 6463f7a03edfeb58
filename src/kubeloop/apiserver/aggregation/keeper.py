"""Follows APIServices as they come and go: keeps the table of them, probes those of other servers, and writes what is found.

Source: kube-aggregator pkg/apiserver/apiservice_controller.go, pkg/controllers/status/{local,remote}.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kubeloop.apiserver.aggregation.conditions import LOCAL, Finding, with_condition
from kubeloop.apiserver.aggregation.registered import OWN_GROUP, Registered, Table, is_remote, registered
from kubeloop.apiserver.object_meta import timestamp
from kubeloop.apiserver.objects import Objects, StaleWrite
from kubeloop.apiserver.ownership import SERVER, Owners
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.resource import ServedResource
from kubeloop.apiserver.storage import KeyValue, prefix_end
from kubeloop.apiserver.watch_cache import Subscription, WatchCache
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.timing import Clock

if TYPE_CHECKING:
    from kubeloop.apiserver.aggregation.backend import Backends
    from kubeloop.apiserver.aggregation.probe import Probe

JSONObject = dict[str, Any]

API_SERVICES: Final = GroupVersionResource(OWN_GROUP, "v1", "apiservices")
_SERVICES: Final = GroupVersionResource("", "v1", "services")
_SLICES: Final = GroupVersionResource("discovery.k8s.io", "v1", "endpointslices")
_OWNER: Final = "kubernetes.io/service-name"


class Keeper:
    """Keeps ``table`` up to date from ``start`` to ``stop``.

    Guarantees
        A change that the watch cache has handed out is soon in the table. What is found of a service is written to its status before a
        moment has passed; nothing is written while nothing changes.

    Not guaranteed
        That a request finds an APIService the very moment that its creation has been answered.
    """

    def __init__(
        self,
        table: Table,
        registry: Registry,
        objects: Objects,
        owners: Owners,
        changes: WatchCache,
        clock: Clock,
        backends: Callable[[], Backends],
    ) -> None:
        self._table = table
        self._registry = registry
        self._objects = objects
        self._owners = owners
        self._changes = changes
        self._clock = clock
        self._backends = backends
        self._revisions: dict[str, int] = {}
        self._probes: dict[str, Probe] = {}
        #: Labels and annotations, by name.
        self._said: dict[str, tuple[Any, Any]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._follows_services = False

    async def start(self) -> None:
        """The watch cache must have been started."""
        resource = self._resource(API_SERVICES)
        subscription = self._changes.subscribe(resource.storage_prefix)
        found = await self._objects.storage.range(resource.storage_prefix, prefix_end(resource.storage_prefix))
        for kv in found.items:
            await self._changed(kv)

        async def follow() -> None:
            try:
                while events := await subscription.take():
                    for event in events:
                        if event.event.value is None:
                            await self._gone(event.key.removeprefix(resource.storage_prefix))
                        else:
                            await self._changed(event.current())
            finally:
                subscription.close()

        self._tasks.append(asyncio.create_task(follow(), name="API services"))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for probe in list(self._probes.values()):
            await probe.stop()
        self._probes.clear()

    def look(self, name: str) -> None:
        """Look at an APIService at once: something says that it is not what it was."""
        probe = self._probes.get(name)
        if probe is not None:
            probe.look()

    async def _changed(self, kv: KeyValue) -> None:
        resource = self._resource(API_SERVICES)
        obj = self._objects.tree(resource, kv)
        found = registered(obj)
        if self._revisions.get(found.name, 0) >= kv.mod_revision:
            return
        self._revisions[found.name] = kv.mod_revision
        before = self._table.services.get(found.name)
        if before != found:
            self._table.services[found.name] = found
            self._table.changed()
        if not is_remote(found):
            await self._end_probe(found.name)
            if with_condition(obj, LOCAL, "") != obj:
                await self._tell(found, LOCAL)
            return
        self._follow_services()
        probe = self._probes.get(found.name)
        said = (obj["metadata"].get("labels"), obj["metadata"].get("annotations"))
        if probe is not None and _same(probe.service, found):
            if self._said.get(found.name) != said:  # whoever touches it wants it looked at
                self._said[found.name] = said
                probe.read_anew()
            return
        self._said[found.name] = said
        await self._end_probe(found.name)
        probe = self._probes[found.name] = self._probe(found)
        probe.start()

    def _probe(self, service: Registered) -> Probe:
        """What looks at other servers is imported with the first of them: most servers have none."""
        from kubeloop.apiserver.aggregation.availability import Checks
        from kubeloop.apiserver.aggregation.documents import Reader
        from kubeloop.apiserver.aggregation.probe import Probe

        backends = self._backends()
        checks = Checks(self._registry, self._objects, backends)
        return Probe(service, checks, self._tell, Reader(self._table, backends).read, self._clock)

    async def _gone(self, name: str) -> None:
        self._revisions.pop(name, None)
        self._said.pop(name, None)
        await self._end_probe(name)
        if self._table.services.pop(name, None) is not None:
            self._table.changed()

    async def _end_probe(self, name: str) -> None:
        probe = self._probes.pop(name, None)
        if probe is not None:
            await probe.stop()
            self._table.forget(name)

    def _follow_services(self) -> None:
        """Once there is a first APIService that needs it: services and their endpoints may make all the difference."""
        if self._follows_services:
            return
        self._follows_services = True
        for gvr in (_SERVICES, _SLICES):
            resource = self._resource(gvr)
            work = self._nudge(resource, self._changes.subscribe(resource.storage_prefix))
            self._tasks.append(asyncio.create_task(work, name=f"{gvr.resource} of API services"))

    async def _nudge(self, resource: ServedResource, subscription: Subscription) -> None:
        try:
            while events := await subscription.take():
                for event in events:
                    obj = self._objects.tree(resource, event.current())
                    metadata = obj["metadata"]
                    labelled = (metadata.get("labels") or {}).get(_OWNER, "")
                    name = metadata["name"] if resource.gvr == _SERVICES else labelled
                    for probe in self._probes.values():
                        wanted = probe.service.service
                        if wanted is not None and (wanted.namespace, wanted.name) == (metadata.get("namespace", ""), name):
                            probe.look()
        finally:
            subscription.close()

    async def _tell(self, service: Registered, finding: Finding) -> None:
        """Write what was found to the status, unless it says so already or is of a service that is no longer meant."""
        resource = self._resource(API_SERVICES)
        while (stored := await self._objects.get(resource, "", service.name)) is not None:
            if not _same(registered(stored.obj), service):
                return
            obj = with_condition(stored.obj, finding, timestamp(self._clock.wall()))
            if obj == stored.obj:
                return
            self._owners.updated(self._owners.scope(resource, "status"), stored.obj, obj, SERVER)
            try:
                await self._objects.write(resource, obj, expected=stored.revision)
            except StaleWrite:
                continue
            return

    def _resource(self, gvr: GroupVersionResource) -> ServedResource:
        found = self._registry.get(gvr)
        if found is None:
            raise LookupError(f"the registry does not serve {gvr}")
        return found


def _same(one: Registered, other: Registered) -> bool:
    """Whether what is behind it is the same, whatever was found of it."""
    return replace(one, available=False) == replace(other, available=False)
