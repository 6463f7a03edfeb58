"""The context that a manager passes to runnables and controllers, and the gate that pauses a controller."""

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
    """Called after every reconcile."""

    def __call__(self, controller: str, seconds: float, result: str) -> None:
        """Record a reconcile.

        ``seconds`` is wall-clock time. ``result`` is success, error, requeue or requeue_after, as in controller-runtime.
        """


@dataclass(frozen=True, slots=True)
class RunnableContext:
    """The settings and services that a manager passes to each runnable of one cluster.

    Attributes:
        client: the client of the cluster.
        informers: the informers of the cluster, shared by all runnables.
        clock: measures all times.
        namespace: the default namespace of informers; None: all namespaces.
        grace: grace period in seconds for runnables to end; None: no limit.
        sync_timeout: seconds in which informers must sync.
        scope: the objects that informers cache, ``namespace`` included:
            ``informers.of(kind, **context.scope.select(kind, namespaced=...))``.
        observe: called with each reconcile; None: not observed.
        workers: name of a controller -> number of workers that overrides the class's.
        queue_metrics: makes the metrics of a queue; None: queues are not measured.
        rate_cap: the rate limit of all queues of the process together; None: no limit.
        ownership: returns the ownership of a controller's keys if several replicas share them; None: this replica owns all keys.
        elected: whether leader election is used, so that runnables that need the leader run in one replica only.
        advised: explained permissions (see ``FailureLog``), shared so that a permission that several controllers lack is explained once.

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
    """Pauses reconciles. While it is closed no reconcile starts, and running ones end. Caches and queue stay current, so no change is
    missed.

    Use it in the event loop's thread only. Each worker may hold one key while it waits.
    """

    def __init__(self) -> None:
        self._opened: asyncio.Event | None = None

    @property
    def paused(self) -> bool:
        return self._opened is not None

    def pause(self) -> None:
        """Close the gate, so that no reconcile starts. If it is closed already, do nothing."""
        if self._opened is None:
            self._opened = asyncio.Event()

    def resume(self) -> None:
        """Open the gate, so that reconciles start again."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.set()

    async def passed(self) -> None:
        """Wait until the gate is open."""
        while self._opened is not None:
            await self._opened.wait()
