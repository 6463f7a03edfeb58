"""The context of runnables and controllers: what a manager passes to each of them; and the gate that pauses a controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kubeloop.cache import Informers
from kubeloop.client import Client
from kubeloop.controller.reader.reader import CacheScope
from kubeloop.meta import ObjectKey
from kubeloop.timing import Clock
from kubeloop.workqueue import QueueMetrics, RateCap

if TYPE_CHECKING:
    from kubeloop.controller.events import EventRecorder
    from kubeloop.controller.reader.reader import CacheReader
    from kubeloop.controller.sharding.ownership import Ownership


class ReconcileObserver(Protocol):
    """Is told of every reconcile, once it has ended."""

    def __call__(self, controller: str, seconds: float, result: str) -> None:
        """``seconds``: of the wall clock. ``result``: success, error, requeue or requeue_after, as controller-runtime counts them."""


@dataclass(frozen=True, slots=True)
class RunnableContext:
    """What a manager gives to all that it runs.

    ``namespace`` None is all namespaces; ``grace``, ``sync_timeout``: the manager's. ``scope``: what informers are to keep, ``namespace``
    included: ``informers.of(kind, **surroundings.scope.select(kind, namespaced=...))``. ``observe``: who wants to hear of reconciles.
    ``workers``: by name of controller, where the program's settings say another number than the class. ``queue_metrics``: makes what each
    queue tells its times to, if anybody wants them. ``rate_cap``: of all queues of the process together. ``ownership``: gives for a
    controller's name what is this replica's of its keys, where they are spread over several; None: all. ``elected``: what needs the leader
    runs in one replica of several. ``advised``: see ``FailureLog``; one set for all controllers, so that a permission which several of them
    lack is explained once.
    """

    client: Client
    informers: Informers
    clock: Clock
    namespace: str | None = None
    grace: float | None = None
    sync_timeout: float = 120.0
    scope: CacheScope = field(default_factory=CacheScope)
    observe: ReconcileObserver | None = None
    workers: Mapping[str, int] = field(default_factory=dict)
    queue_metrics: Callable[[], QueueMetrics] | None = None
    rate_cap: RateCap | None = None
    ownership: Callable[[str], Ownership] | None = None
    elected: bool = False
    advised: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class ControllerContext:
    """What one connected controller works with."""

    surroundings: RunnableContext
    events: EventRecorder
    cache: CacheReader
    enqueue: Callable[[ObjectKey, float, int], None]


class Gate:
    """While it is closed no reconcile begins; those under way end. Caches and queue go on to follow the cluster, so nothing is missed.

    For the event loop's thread. Each worker may hold one key while it waits.
    """

    def __init__(self) -> None:
        self._opened: asyncio.Event | None = None

    @property
    def paused(self) -> bool:
        return self._opened is not None

    def pause(self) -> None:
        """Begin no reconcile. Twice does nothing."""
        if self._opened is None:
            self._opened = asyncio.Event()

    def resume(self) -> None:
        """Go on."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.set()

    async def passed(self) -> None:
        """Return when it is open."""
        while self._opened is not None:
            await self._opened.wait()
