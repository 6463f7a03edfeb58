"""The context that a manager passes to runnables and controllers, and the gate that pauses a controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kubeloop.cache import InformerFactory
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
    """A callback that records the duration and the result of each reconcile."""

    def __call__(self, controller: str, seconds: float, result: str) -> None:
        """Record a reconcile.

        ``controller`` is the name of the controller, ``seconds`` the elapsed time, and ``result`` is success, error, requeue or
        requeue_after, as in controller-runtime.
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
            ``informers.for_kind(kind, **context.scope.select(kind, namespaced=...))``.
        observe: called after each reconcile; None: reconciles are not observed.
        workers: name of a controller -> number of workers, which overrides the number that the class declares.
        queue_metrics: returns the metrics of a new queue; None: queues are not measured.
        rate_cap: the rate limit of all queues of the process together; None: no limit.
        ownership: takes the name of a controller and returns which of its keys this replica owns; None: this replica owns all keys.
        elected: whether leader election is used, so that runnables that need the leader run in one replica only.
        advised: explained permissions (see ``FailureLog``), shared so that a permission that several controllers lack is explained once.

    Example:
        >>> async def report(context: RunnableContext) -> None:
        ...     print("running in", context.client.cluster)
        >>> from kubeloop import Manager
        >>> manager = Manager(client, [report])
    """

    client: Client
    informers: InformerFactory
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

    context: RunnableContext
    events: EventRecorder
    cache: CacheReader
    enqueue: Callable[[ObjectKey, float, int], None]


class Gate:
    """Pauses the reconciles of a controller.

    While the gate is closed, no reconcile starts, and running reconciles end normally. Caches and queue stay current, so no change is
    missed. Each waiting worker may have taken one key from the queue. Use the gate in the event loop's thread only.
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

    async def wait_until_fresh(self) -> None:
        """Wait until the gate is open."""
        while self._opened is not None:
            await self._opened.wait()
