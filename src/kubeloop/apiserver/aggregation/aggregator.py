"""The aggregation layer as the server uses it, and the controller that registers APIServices for custom resources."""

from __future__ import annotations

import contextlib
import copy
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kubeloop.apiserver.aggregation.api_services import MANAGED, OWN_GROUP, Table
from kubeloop.apiserver.aggregation.controller import Keeper
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
#: Of groups of custom resources, which come after Kubernetes' own.
GROUP_PRIORITY: Final = 1000
VERSION_PRIORITY: Final = 100


class Autoregister:
    """Maintains the APIServices that it created. It leaves alone those that others created under the same name."""

    def __init__(self, registry: Registry, objects: Objects, owners: Owners, changes: WatchCache, clock: Clock) -> None:
        self._registry = registry
        self._objects = objects
        self._owners = owners
        self._changes = changes
        self._clock = clock
        #: By key of a definition, the (group, version)s that it serves.
        self._served: dict[str, frozenset[tuple[str, str]]] = {}
        #: The (group, version)s whose APIService could not be written.
        self._unsettled: set[tuple[str, str]] = set()
        self._controllers: list[ResourceController] = []

    async def start(self, tasks: Supervisor) -> None:
        """Register what storage holds, then follow changes until ``stop``. The watch cache must have been started.

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

    def _wanted(self) -> set[tuple[str, str]]:
        return {one for served in self._served.values() for one in served}

    def _versions(self, resource: ServedResource, kv: KeyValue) -> frozenset[tuple[str, str]]:
        spec = self._objects.tree(resource, kv)["spec"]
        return frozenset((spec["group"], version["name"]) for version in spec.get("versions") or () if version.get("served"))

    async def _sync_definition(self, key: str, kv: KeyValue | None) -> None:
        before = self._served.pop(key, frozenset())
        after = frozenset[tuple[str, str]]()
        if kv is not None:
            after = self._served[key] = self._versions(self._resource(DEFINITIONS), kv)
        self._unsettled |= before | after
        for one in sorted(self._unsettled):
            await self._settle(*one)
            self._unsettled.discard(one)

    async def _sync_service(self, key: str, kv: KeyValue | None) -> None:
        """An APIService that is managed here and was deleted or changed is written again."""
        name = key.rpartition("/")[2]
        version, _, group = name.partition(".")
        if kv is None or (group, version) in self._wanted() or _is_kept(self._objects.tree(self._resource(_API_SERVICES), kv)):
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
        with contextlib.suppress(PreconditionFailed):  # somebody wrote first; the change that brings their state is on its way
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
        with contextlib.suppress(PreconditionFailed):
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


class Aggregator:
    """APIs of other servers, registered as APIServices.

    Guarantees
        ``behind`` is None for every path that this server answers by itself; for others, ``answer`` asks whom the path belongs to, as the
        user that the request is from, who has been authorized.

    Not guaranteed
        Discovery of the other servers that is newer than a minute.
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
        self.table = Table()
        self._registry = registry
        self._objects = objects
        self._identity = identity
        self._reach = reach
        self._keeper = Keeper(self.table, registry, objects, owners, changes, clock, lambda: self._backends)
        self._autoregister = Autoregister(registry, objects, owners, changes, clock)

    async def start(self, tasks: Supervisor, *, autoregister: bool = True) -> None:
        """``autoregister`` False: no APIServices for custom resources. The watch cache must have been started."""
        if autoregister:
            await self._autoregister.start(tasks)
        await self._keeper.start(tasks)

    async def stop(self) -> None:
        await close_all(self._autoregister.stop, self._keeper.stop)

    @cached_property
    def _backends(self) -> Backends:
        from kubeloop.apiserver.aggregation.backend import Backends
        from kubeloop.apiserver.outbound.target import ServiceResolver

        return Backends(ServiceResolver(self._registry, self._objects).resolve, self._identity, self._reach)

    def behind(self, request: Request, user: User, audit_id: str) -> Awaitable[Reply] | None:
        """The answer of another server, to be awaited; None: this server answers the path by itself."""
        service = self.table.behind(request.path)
        if service is None:
            return None
        from kubeloop.apiserver.aggregation.backend import proxied

        return proxied(request, user, audit_id, service, self._backends, lambda: self._keeper.look(service.name))
