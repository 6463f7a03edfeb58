"""Runs one controller: connects it to informers, turns their events into keys, and keys into reconciles."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kubeloop.cache import Lister, Registration
from kubeloop.controller.builder.context import ControllerContext, RunnableContext
from kubeloop.controller.builder.controller import Controller, ControllerBase, KeyController
from kubeloop.controller.builder.declaration import Declaration, checked_sources, contained_limiter, contained_tenants
from kubeloop.controller.errors import DeclarationError
from kubeloop.controller.events import FLUSH, EventRecorder
from kubeloop.controller.handler.routes import Debouncer, Enqueuer, KeyQueue, OwnedKeys
from kubeloop.controller.reader.reader import CacheReader
from kubeloop.controller.reader.stale_read_guard import StaleReadGuard
from kubeloop.controller.result import Result, TerminalError
from kubeloop.controller.runner.runnable import ReconcileCounts, RunnerStats
from kubeloop.controller.runner.watches import PAUSED, ChannelReader, Watches
from kubeloop.controller.runner.workers import Workers
from kubeloop.controller.threads import ThreadExecutor
from kubeloop.meta import DecodeError, ObjectKey, Resource
from kubeloop.tasks import result_of
from kubeloop.workqueue import LOW_PRIORITY, PriorityQueue, QueueStats

if TYPE_CHECKING:
    from kubeloop.controller.sharding.membership import Ownership

R = TypeVar("R", bound=Resource)


class Runner(Generic[R]):
    """Runs a ``Controller`` or ``KeyController``.

    Changes come before initial objects and resyncs: the queue is a ``PriorityQueue``.
    Back-off of failing keys: 5 ms doubling to 1000 s, each key by itself (controller-runtime's default).
    """

    # Behaviours R212-R216, X12.

    def __init__(self, controller: ControllerBase[R], *, name: str = "") -> None:
        """Create a runner. ``name`` distinguishes several runners of one class, for several clusters; default: the controller's name.

        Raises:
            DeclarationError: the class cannot be run; the message says why.
        """
        self._controller = controller
        self._declaration: Declaration = type(controller)._declaration()
        self._name = name or self._declaration.name
        self._class = type(controller).__name__
        if not isinstance(controller, Controller | KeyController):
            raise DeclarationError(f"{self._class} must derive from Controller or KeyController")
        self._plain = not inspect.iscoroutinefunction(controller.reconcile)
        self._channels = checked_sources(self._class, controller.sources)
        self._wiring = Watches(self._declaration, controller)
        self._workers_wanted = self._declaration.workers
        self._ownership: Ownership | None = None
        self._disown: Callable[[], None] = lambda: None
        self._threads: ThreadExecutor | None = None
        self._registrations: list[Registration[Any]] = []
        self._queue: PriorityQueue[ObjectKey] | None = None
        self._workers: Workers[ObjectKey] | None = None
        self._debouncer: Debouncer | None = None
        self._recorder: EventRecorder | None = None
        self._sources: ChannelReader | None = None
        self._fences: StaleReadGuard | None = None
        self._elected = False
        self._lister: Lister[Any] | None = None
        self._enqueuer: Enqueuer | None = None
        self._stopping = False
        self._connected = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def controller(self) -> ControllerBase[R]:
        return self._controller

    @property
    def needs_leader(self) -> bool:
        return self._declaration.needs_leader

    @property
    def warm_up(self) -> bool:
        return self._declaration.warm_up

    @property
    def in_threads(self) -> int:
        """Number of reconciles that run in threads. Threads cannot be cancelled, so there may be some even after ``run`` has ended."""
        return self._threads.busy if self._threads is not None else 0

    @property
    def queue(self) -> PriorityQueue[ObjectKey] | None:
        """The queue of keys; None before ``connect``."""
        return self._queue

    @property
    def events(self) -> EventRecorder | None:
        """The event recorder; None before ``connect``."""
        return self._recorder

    @property
    def stats(self) -> RunnerStats:
        queue = self._queue.stats if self._queue is not None else QueueStats(0, 0, 0, 0, 0)
        counts = self._workers.counts if self._workers is not None else ReconcileCounts()
        event = self._enqueuer.last_event if self._enqueuer is not None else None
        change = f"{event.view.kind.kind} {event.key} {event.type.value}" if event is not None else ""
        return RunnerStats(self.name, self._workers_wanted, queue, counts, change)

    async def connect(self, context: RunnableContext) -> None:
        declared, controller = self._declaration, self._controller
        client, clock = context.client, context.clock
        queue: PriorityQueue[ObjectKey] = PriorityQueue(
            contained_limiter(controller.retry_limiter(clock), self._class),
            clock,
            tenant=contained_tenants(controller.tenants(), self._class),
            cap=context.rate_cap,
            metrics=context.queue_metrics() if context.queue_metrics is not None else None,
        )
        self._queue = queue
        self._workers_wanted = context.workers.get(self._name, declared.workers)
        flush = FLUSH if context.grace is None else min(FLUSH, context.grace)
        self._recorder = EventRecorder(client, declared.name, sinks=controller.event_sinks(), clock=clock, flush=flush)
        await self._recorder.__aenter__()
        informers = await self._wiring.informers(context)
        self._lister = informers[declared.kind].lister
        if isinstance(controller, Controller):
            informers[declared.kind].keep_recent()
        overlaid = context.informers.read_your_writes
        self._elected = context.elected and self.needs_leader
        self._fences = StaleReadGuard(
            client, self._wiring.written, list(informers.values()), namespaced=self._wiring.namespaced, overlaid=overlaid
        )
        reconcile: Callable[[ObjectKey], Awaitable[Result | None]] = (
            self._for_object if isinstance(controller, Controller) else self._for_key
        )
        own = self._ownership = context.ownership(self._name) if context.ownership is not None else None
        if own is not None:
            reconcile = own.guarded(reconcile)
        self._workers = Workers(
            self._name,
            reconcile,
            queue,
            self._workers_wanted,
            cluster=client.cluster,
            clock=clock,
            timeout=declared.timeout,
            gate=controller._own_gate,
            observe=context.observe,
            failed=self._fences.mark_uncertain,
            owner=self._class,
            advised=context.advised,
        )
        sink: KeyQueue = queue if own is None else OwnedKeys(queue, own)
        if declared.debounce:  # Before the check of ownership: a key may move to another replica while it waits.
            sink = self._debouncer = Debouncer(sink, declared.debounce, clock)
        enqueuer = self._enqueuer = Enqueuer(sink, client.cluster)
        enqueue = _enqueue(queue, client.cluster)
        controller._connect(ControllerContext(context, self._recorder, CacheReader(self._class, informers), enqueue))
        self._connected = True
        for informer, handler in self._wiring.handlers(enqueuer, client.cluster).items():
            name = f"controller {self._name}"
            self._registrations.append(informer.on_event(added=handler, updated=handler, deleted=handler, name=name))
        self._sources = ChannelReader(self._class, self._channels, enqueue, clock)
        self._sources.start()

    async def synced(self, timeout: float) -> None:
        for registration in self._registrations:
            await registration.wait_synced(timeout)
        if self._ownership is not None:
            # Earlier gains need no callback: all keys owned by now are enqueued here.
            self._disown = self._ownership.on_gained(self._take_over)
            self._take_over(self._ownership.owns)

    def explain(self, error: BaseException) -> None:
        """Add a note to an error of the start for each kind that this controller cannot list: class, kind, missing verbs, and the fix."""
        self._wiring.explain(error)

    async def run(self) -> None:
        workers, sources = self._workers, self._sources
        if workers is None or sources is None:
            raise DeclarationError(f"controller {self.name} was not connected")
        if self._plain:
            self._threads = ThreadExecutor(self.name)
        if self._elected and self._fences is not None:
            self._fences.on_leadership_acquired()  # Another replica may have led until now.
        await self._controller.start()
        try:
            await sources.beside(workers.run(), self.stop)
        finally:
            await self._controller.stop()

    def resize(self, workers: int | None) -> None:
        """Set the number of workers; if ``workers`` is None, to the number that the class declares.

        Raises:
            ValueError: the number is less than 1.
        """
        self._workers_wanted = self._declaration.workers if workers is None else workers
        if self._workers is not None:
            self._workers.resize(self._workers_wanted)

    def stop(self) -> None:
        self._stopping = True
        if self._workers is not None:
            self._workers.stop()
        if self._fences is not None:
            self._fences.cancel()

    async def close(self) -> None:
        self._disown()
        for registration in self._registrations:
            registration.remove()
        if self._debouncer is not None:
            self._debouncer.close()
        if self._sources is not None:
            await self._sources.close()
        if self._fences is not None:
            self._fences.close()
        if self._queue is not None:
            self._queue.shut_down()
        if self._threads is not None:
            self._threads.close()
        if self._recorder is not None:
            await self._recorder.__aexit__(None, None, None)
        if self._connected:
            self._controller._disconnect()
            self._connected = False

    def _take_over(self, gained: Callable[[ObjectKey], bool]) -> None:
        """Enqueue the gained keys, which another replica owned until now: their earlier changes were filtered out here."""
        assert self._lister is not None
        assert self._queue is not None
        assert self._fences is not None
        self._fences.on_leadership_acquired()
        for head in self._lister.heads():
            key = ObjectKey(self._controller.cluster, head.namespace, head.name)
            if gained(key):
                self._queue.add(key, priority=LOW_PRIORITY)

    async def _for_object(self, key: ObjectKey) -> Result | None:
        """Reconcile one key for a ``Controller``. Called by a worker."""
        assert self._lister is not None
        assert self._fences is not None
        if self._fences.before(key) and not await self._fences.wait_until_fresh(key):
            return None
        head = self._lister.head(key.name, key.namespace)
        if head is None:
            self._fences.forget(key)
            return None
        if self._wiring.pause_path and head.value(self._wiring.pause_path) == PAUSED:
            return None
        try:
            obj = self._lister.decoded(head)
        except DecodeError as error:
            raise TerminalError(f"it does not fit {self._declaration.kind.__name__}: {error}") from error
        return await self._called(obj)

    async def _for_key(self, key: ObjectKey) -> Result | None:
        """Reconcile one key for a ``KeyController``. Called by a worker."""
        assert self._lister is not None
        assert self._fences is not None
        if self._fences.before(key) and not await self._fences.wait_until_fresh(key):
            return None
        if self._wiring.pause_path:
            head = self._lister.head(key.name, key.namespace)
            if head is not None and head.value(self._wiring.pause_path) == PAUSED:
                return None
        return await self._called(key)

    async def _called(self, argument: Any) -> Result | None:
        controller: Any = self._controller
        if self._threads is None:
            answer: Result | None = await controller.reconcile(argument)
            return answer
        work = self._threads.call(controller.reconcile, argument)
        try:
            found = await result_of(work)
        except asyncio.CancelledError:
            # A thread cannot be interrupted. Its key stays in work until the thread ends, unless the runner stops.
            if not self._stopping:
                await asyncio.wait([work])
                if not work.cancelled():
                    work.exception()  # The result is ignored, since the time limit has passed.
            raise
        result: Result | None = await found if inspect.isawaitable(found) else found
        return result


def _enqueue(queue: PriorityQueue[ObjectKey], cluster: str) -> Callable[[ObjectKey, float, int], None]:
    """Return a function that adds a key from any thread."""
    loop, thread = asyncio.get_running_loop(), threading.get_ident()

    def enqueue(key: ObjectKey, after: float, priority: int) -> None:
        whole = key if key.cluster else key._replace(cluster=cluster)

        def add() -> None:
            queue.add_after(whole, after, priority=priority)

        if threading.get_ident() == thread:
            add()
        else:
            loop.call_soon_threadsafe(add)

    return enqueue
