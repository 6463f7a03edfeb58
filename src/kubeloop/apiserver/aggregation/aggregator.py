"""The aggregation layer, and the controller that registers APIServices for custom resources."""

from __future__ import annotations

import contextlib
import copy
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kubeloop.apiserver.aggregation.api_services import MANAGED, OWN_GROUP, ApiServiceTable
from kubeloop.apiserver.aggregation.controller import ApiServiceController
from kubeloop.apiserver.builtin.bootstrap.objects import available
from kubeloop.apiserver.ownership import SERVER, Owners
from kubeloop.apiserver.registry.object_meta import fill_new, timestamp
from kubeloop.apiserver.registry.objects import Objects, PreconditionFailed
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.registry.resource_controller import ResourceController
from kubeloop.apiserver.storage import KeyValue
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.endpoints.access import User
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.reverseproxy.egress_policy import EgressPolicy
from kubeloop.reverseproxy.identity import ProxyIdentity
from kubeloop.serving.answer import Reply
from kubeloop.serving.request import Request
from kubeloop.tasks import Supervisor, close_all
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kubeloop.apiserver.aggregation.backend import Backends

# Autoregistration: one APIService for each group and version of CustomResourceDefinitions, deleted with the last of them.
# Source: k8s.io/kubernetes pkg/controlplane/controller/crdregistration; kube-aggregator pkg/controllers/autoregister.


DEFINITIONS: Final = GroupVersionResource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
_API_SERVICES: Final = GroupVersionResource(OWN_GROUP, "v1", "apiservices")
#: Priority of the groups of custom resources, lower than that of Kubernetes' groups.
GROUP_PRIORITY: Final = 1000
VERSION_PRIORITY: Final = 100


class Autoregister:
    """Creates and deletes the APIServices of custom resources. APIServices that other clients created under such a name stay unchanged."""

    def __init__(self, registry: Registry, objects: Objects, owners: Owners, changes: WatchCache, clock: Clock) -> None:
        """Create the controller. It does nothing before ``start``.

        Args:
            registry: The served resources.
            objects: Objects over storage.
            owners: Field managers of objects.
            changes: The watch cache.
            clock: The clock of the server.
        """
        self._registry = registry
        self._objects = objects
        self._owners = owners
        self._changes = changes
        self._clock = clock
        #: Storage key of a definition -> the (group, version) pairs that it serves.
        self._served: dict[str, frozenset[tuple[str, str]]] = {}
        #: The (group, version) pairs whose APIService was not written yet, because a write failed.
        self._pending: set[tuple[str, str]] = set()
        self._controllers: list[ResourceController] = []

    async def start(self, tasks: Supervisor) -> None:
        """Create the APIServices of stored definitions, then follow changes until ``stop``. The watch cache must have been started.

        Raises:
            StorageFailed: The objects cannot be read.
        """
        # All definitions are known before APIServices are synced: else APIServices of definitions that were not read yet would be removed.
        for gvr, sync in ((DEFINITIONS, self._sync_definition), (_API_SERVICES, self._sync_service)):
            prefix = self._resource(gvr).storage_prefix
            controller = ResourceController("apiservice-autoregistration", prefix, self._objects.storage, self._changes, sync)
            self._controllers.append(controller)
            await controller.start(tasks)

    async def stop(self) -> None:
        await close_all(*[controller.stop for controller in self._controllers])

    def _desired(self) -> set[tuple[str, str]]:
        return {one for served in self._served.values() for one in served}

    def _versions(self, resource: ServedResource, kv: KeyValue) -> frozenset[tuple[str, str]]:
        spec = self._objects.tree(resource, kv)["spec"]
        return frozenset((spec["group"], version["name"]) for version in spec.get("versions") or () if version.get("served"))

    async def _sync_definition(self, key: str, kv: KeyValue | None) -> None:
        before = self._served.pop(key, frozenset())
        after = frozenset[tuple[str, str]]()
        if kv is not None:
            after = self._served[key] = self._versions(self._resource(DEFINITIONS), kv)
        self._pending |= before | after
        for one in sorted(self._pending):
            await self._reconcile(*one)
            self._pending.discard(one)

    async def _sync_service(self, key: str, kv: KeyValue | None) -> None:
        """Restore a managed APIService that was changed or deleted."""
        name = key.rpartition("/")[2]
        version, _, group = name.partition(".")
        if kv is None or (group, version) in self._desired() or _is_managed(self._objects.tree(self._resource(_API_SERVICES), kv)):
            await self._reconcile(group, version)

    async def _reconcile(self, group: str, version: str) -> None:
        """Create, update or delete the APIService of a version so that it matches the definitions."""
        resource = self._resource(_API_SERVICES)
        stored = await self._objects.get(resource, "", f"{version}.{group}")
        desired = (group, version) in self._desired()
        if stored is None:
            if desired:
                await self._create(resource, group, version)
            return
        if not _is_managed(stored.obj):
            return
        with contextlib.suppress(PreconditionFailed):  # a concurrent write was first; its event starts another sync
            if not desired:
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
        with contextlib.suppress(PreconditionFailed):
            await self._objects.write(resource, obj, expected=0)

    def _resource(self, gvr: GroupVersionResource) -> ServedResource:
        result = self._registry.get(gvr)
        if result is None:
            raise LookupError(f"the registry does not serve {gvr}")
        return result


def _is_managed(obj: JSONObject) -> bool:
    return bool((obj["metadata"].get("labels") or {}).get(MANAGED) == "true")


def _spec(group: str, version: str) -> JSONObject:
    return {"group": group, "version": version, "groupPriorityMinimum": GROUP_PRIORITY, "versionPriority": VERSION_PRIORITY}


class Aggregator:
    """Routes requests for the APIs of extension API servers.

    Guarantees
        ``route_to_backend`` returns None for every path that this server serves itself. The extension server receives other requests with
        the authenticated user in headers; the caller has authorized the request.

    Not guaranteed
        Discovery documents of extension servers may be a minute old.
    """

    def __init__(
        self,
        registry: Registry,
        objects: Objects,
        owners: Owners,
        changes: WatchCache,
        clock: Clock,
        identity: ProxyIdentity,
        reach: EgressPolicy,
    ) -> None:
        """Create the aggregation layer. It does nothing before ``start``.

        Args:
            registry: The served resources.
            objects: Objects over storage.
            owners: Field managers of objects.
            changes: The watch cache.
            clock: The clock of the server.
            identity: The client certificate for extension servers.
            reach: Addresses to which the server may connect.
        """
        self.table = ApiServiceTable()
        self._registry = registry
        self._objects = objects
        self._identity = identity
        self._reach = reach
        self._controller = ApiServiceController(self.table, registry, objects, owners, changes, clock, lambda: self._backends)
        self._autoregister = Autoregister(registry, objects, owners, changes, clock)

    async def start(self, tasks: Supervisor, *, autoregister: bool = True) -> None:
        """Start the background tasks. The watch cache must have been started.

        Args:
            tasks: Runs the tasks.
            autoregister: False: create no APIServices for custom resources.
        """
        if autoregister:
            await self._autoregister.start(tasks)
        await self._controller.start(tasks)

    async def stop(self) -> None:
        await close_all(self._autoregister.stop, self._controller.stop)

    @cached_property
    def _backends(self) -> Backends:
        from kubeloop.apiserver.aggregation.backend import Backends
        from kubeloop.apiserver.outbound.target import ServiceResolver

        return Backends(ServiceResolver(self._registry, self._objects).resolve, self._identity, self._reach)

    def route_to_backend(self, request: Request, user: User, audit_id: str) -> Awaitable[Reply] | None:
        """Return the reply of an extension server, to be awaited, or None if this server serves the path itself.

        Args:
            request: The request.
            user: The authenticated (or impersonated) user.
            audit_id: The audit ID to send along.

        Returns:
            An awaitable reply, or None.
        """
        service = self.table.find_by_path(request.path)
        if service is None:
            return None
        from kubeloop.apiserver.aggregation.backend import proxy_to_service

        return proxy_to_service(request, user, audit_id, service, self._backends, lambda: self._controller.check_now(service.name))
