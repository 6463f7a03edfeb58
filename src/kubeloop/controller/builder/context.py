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
    from kubeloop.controller.sharding.membership import Ownership


class ReconcileObserver(Protocol):
    """Called with every reconcile, after its end."""

    def __call__(self, controller: str, seconds: float, result: str) -> None:
        """``seconds``: of the wall clock. ``result``: success, error, requeue or requeue_after, as controller-runtime counts them."""


@dataclass(frozen=True, slots=True)
class RunnableContext:
    """The settings and services that a manager passes to each runnable of one cluster.

    Attributes:
        client: of the cluster.
        informers: of the cluster, shared by all runnables.
        clock: measures all times.
        namespace: the default namespace of informers; None: all namespaces.
        grace: seconds that runnables have to end; None: no limit.
        sync_timeout: seconds in which informers must sync.
        scope: the objects that informers cache, ``namespace`` included:
            ``informers.of(kind, **context.scope.select(kind, namespaced=...))``.
        observe: called with each reconcile; None: not observed.
        workers: number of workers by name of controller, where the settings override the class.
        queue_metrics: makes the metrics of a queue; None: not measured.
        rate_cap: the rate limit of all queues of the process together; None: no limit.
        ownership: returns the ownership of a controller's keys, where several replicas share them; None: all keys are this replica's.
        elected: runnables that need the leader run in one of several replicas.
        advised: see ``FailureLog``; one set for all controllers, so that a permission that several of them lack is explained once.

    Example:
        >>> async def report(context: RunnableContext) -> None:
        ...     print("running in", context.client.cluster)
        >>> from kubeloop import Manager
        >>> manager = Manager(client, [report])
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
    """The context of one connected controller: its client, caches, queue and events."""

    surroundings: RunnableContext
    events: EventRecorder
    cache: CacheReader
    enqueue: Callable[[ObjectKey, float, int], None]


class Gate:
    """Pauses reconciles. While it is closed none starts; running ones end. Caches and queue follow the cluster, so nothing is missed.

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
