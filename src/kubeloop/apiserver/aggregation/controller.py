"""Watches APIServices: maintains their table, probes extension servers, and writes the condition Available.

Source: kube-aggregator pkg/apiserver/apiservice_controller.go, pkg/controllers/status/{local,remote}.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kubeloop.apiserver.aggregation.api_services import (
    LOCAL,
    OWN_GROUP,
    ApiServiceTable,
    Availability,
    RegisteredService,
    is_remote,
    parse_api_service,
    with_available_condition,
)
from kubeloop.apiserver.ownership import SERVER, Owners
from kubeloop.apiserver.registry.object_meta import timestamp
from kubeloop.apiserver.registry.objects import Objects, PreconditionFailed
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.registry.resource_controller import ResourceController, WatchEnded
from kubeloop.apiserver.storage import KeyValue
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.tasks import SupervisedTask, Supervisor, close_all
from kubeloop.timing import Clock

if TYPE_CHECKING:
    from kubeloop.apiserver.aggregation.availability import Probe
    from kubeloop.apiserver.aggregation.backend import Backends


API_SERVICES: Final = GroupVersionResource(OWN_GROUP, "v1", "apiservices")
_SERVICES: Final = GroupVersionResource("", "v1", "services")
_SLICES: Final = GroupVersionResource("discovery.k8s.io", "v1", "endpointslices")
_OWNER: Final = "kubernetes.io/service-name"


class ApiServiceController:
    """Keeps the table of APIServices up to date between ``start`` and ``stop``.

    Guarantees
        A change that the watch cache has emitted is soon in the table. The status of an APIService is written soon after a probe; there
        are no writes while nothing changes.

    Not guaranteed
        A request immediately after the creation of an APIService may not find it.
    """

    def __init__(
        self,
        table: ApiServiceTable,
        registry: Registry,
        objects: Objects,
        owners: Owners,
        changes: WatchCache,
        clock: Clock,
        backends: Callable[[], Backends],
    ) -> None:
        """Create the controller. It does nothing before ``start``.

        Args:
            table: The table to maintain.
            registry: The served resources.
            objects: Objects over storage.
            owners: Field managers of objects.
            changes: The watch cache.
            clock: The clock of the server.
            backends: Returns the connections to extension servers.
        """
        self._table = table
        self._registry = registry
        self._objects = objects
        self._owners = owners
        self._changes = changes
        self._clock = clock
        self._backends = backends
        self._revisions: dict[str, int] = {}
        self._probes: dict[str, Probe] = {}
        #: Name of the APIService -> its labels and annotations at the last sync.
        self._metadata: dict[str, tuple[Any, Any]] = {}
        self._controller: ResourceController | None = None
        self._tasks: Supervisor | None = None
        self._following: list[SupervisedTask] = []
        #: Names of the APIServices whose last sync failed.
        self._unfinished: set[str] = set()

    async def start(self, tasks: Supervisor) -> None:
        """Load the stored APIServices, then follow changes until ``stop``. The watch cache must have been started.

        Raises:
            StorageFailed: The APIServices cannot be read.
        """
        self._tasks = tasks
        prefix = self._resource(API_SERVICES).storage_prefix
        self._controller = ResourceController("apiservice-controller", prefix, self._objects.storage, self._changes, self._sync)
        await self._controller.start(tasks)

    async def stop(self) -> None:
        probes = list(self._probes.values())
        self._probes.clear()
        steps = [] if self._controller is None else [self._controller.stop]
        await close_all(*steps, *[task.stop for task in self._following], *[probe.stop for probe in probes])

    def check_now(self, name: str) -> None:
        """Probe the server of an APIService at once, because its state may have changed."""
        probe = self._probes.get(name)
        if probe is not None:
            probe.check_now()

    async def _sync(self, key: str, kv: KeyValue | None) -> None:
        name = key.rpartition("/")[2]
        if kv is not None and self._revisions.get(name, 0) >= kv.mod_revision and name not in self._unfinished:
            return
        self._unfinished.add(name)
        if kv is None:
            await self._gone(name)
        else:
            await self._changed(kv)
        self._unfinished.discard(name)

    async def _changed(self, kv: KeyValue) -> None:
        resource = self._resource(API_SERVICES)
        obj = self._objects.tree(resource, kv)
        result = parse_api_service(obj)
        self._revisions[result.name] = kv.mod_revision
        before = self._table.services.get(result.name)
        if before != result:
            self._table.services[result.name] = result
            self._table.changed()
        if not is_remote(result):
            await self._end_probe(result.name)
            if with_available_condition(obj, LOCAL, "") != obj:
                await self._write_status(result, LOCAL)
            return
        self._follow_services()
        probe = self._probes.get(result.name)
        reported = (obj["metadata"].get("labels"), obj["metadata"].get("annotations"))
        if probe is not None and _same(probe.service, result):
            if self._metadata.get(result.name) != reported:  # a user who changes labels or annotations expects a new probe
                self._metadata[result.name] = reported
                probe.refresh()
            return
        self._metadata[result.name] = reported
        await self._end_probe(result.name)
        self._probes[result.name] = self._probe(result)

    def _probe(self, service: RegisteredService) -> Probe:
        """Create the probe of an extension server. Its modules are imported here because most servers have no extension server."""
        from kubeloop.apiserver.aggregation.availability import AvailabilityChecker, Probe
        from kubeloop.apiserver.aggregation.documents import DocumentFetcher

        backends = self._backends()
        checks = AvailabilityChecker(self._registry, self._objects, backends)
        assert self._tasks is not None
        probe = Probe(service, checks, self._write_status, DocumentFetcher(self._table, backends).read, self._clock)
        probe.start(self._tasks)
        return probe

    async def _gone(self, name: str) -> None:
        self._revisions.pop(name, None)
        self._metadata.pop(name, None)
        await self._end_probe(name)
        if self._table.services.pop(name, None) is not None:
            self._table.changed()

    async def _end_probe(self, name: str) -> None:
        probe = self._probes.pop(name, None)
        if probe is not None:
            await probe.stop()
            self._table.forget(name)

    def _follow_services(self) -> None:
        """Start to watch Services and EndpointSlices. This happens when the first APIService of an extension server appears."""
        if self._following:
            return
        assert self._tasks is not None
        for gvr in (_SERVICES, _SLICES):
            work = partial(self._follow_backends, self._resource(gvr))
            self._following.append(self._tasks.start(work, name="apiservice-backends"))

    async def _follow_backends(self, resource: ServedResource) -> None:
        subscription = self._changes.subscribe(resource.storage_prefix)
        try:
            for probe in self._probes.values():
                probe.check_now()  # changes from before the subscription were not seen
            while events := await subscription.receive():
                for event in events:
                    obj = self._objects.tree(resource, event.current())
                    metadata = obj["metadata"]
                    labelled = (metadata.get("labels") or {}).get(_OWNER, "")
                    name = metadata["name"] if resource.gvr == _SERVICES else labelled
                    for probe in self._probes.values():
                        desired = probe.service.service
                        if desired is not None and (desired.namespace, desired.name) == (metadata.get("namespace", ""), name):
                            probe.check_now()
            raise WatchEnded(f"the watch of {resource.storage_prefix} ended")
        finally:
            subscription.close()

    async def _write_status(self, service: RegisteredService, availability: Availability) -> None:
        """Write the condition Available, unless it is unchanged or the APIService was changed to name another server."""
        resource = self._resource(API_SERVICES)
        while (stored := await self._objects.get(resource, "", service.name)) is not None:
            if not _same(parse_api_service(stored.obj), service):
                return
            obj = with_available_condition(stored.obj, availability, timestamp(self._clock.wall()))
            if obj == stored.obj:
                return
            self._owners.updated(self._owners.scope(resource, "status"), stored.obj, obj, SERVER)
            try:
                await self._objects.write(resource, obj, expected=stored.revision)
            except PreconditionFailed:
                continue
            return

    def _resource(self, gvr: GroupVersionResource) -> ServedResource:
        result = self._registry.get(gvr)
        if result is None:
            raise LookupError(f"the registry does not serve {gvr}")
        return result


def _same(service: RegisteredService, other: RegisteredService) -> bool:
    """Return whether two versions of an APIService name the same extension server."""
    return replace(service, available=False) == replace(other, available=False)
