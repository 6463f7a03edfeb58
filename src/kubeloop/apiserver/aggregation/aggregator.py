"""The aggregation layer put together: what the server starts and stops, and what a request is asked about on its way."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kubeloop.apiserver.aggregation.autoregister import Autoregister
from kubeloop.apiserver.aggregation.controller import Keeper
from kubeloop.apiserver.aggregation.registered import Table
from kubeloop.apiserver.ownership import Owners
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.endpoints.access import User
from kubeloop.reverseproxy.egress_policy import EgressPolicy
from kubeloop.reverseproxy.identity import ProxyIdentity
from kubeloop.serving.answer import Reply
from kubeloop.serving.request import Request
from kubeloop.tasks import Supervisor, close_all
from kubeloop.timing import Clock

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kubeloop.apiserver.aggregation.backend import Backends


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
