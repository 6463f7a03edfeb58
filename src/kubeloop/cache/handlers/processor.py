"""Fan-out: who hears of an informer's changes. Each handler has a buffer and a resync pace of its own; none waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from kubeloop.cache.diagnostics.leaks import DuplicateInformerCheck
from kubeloop.cache.handlers.buffer import Replay
from kubeloop.cache.handlers.event import Event, EventType
from kubeloop.cache.handlers.registration import Callbacks, Registration
from kubeloop.cache.lister.view import View
from kubeloop.cache.persistence import Persistence
from kubeloop.cache.store.store import Snapshot
from kubeloop.cache.tasks.progress import Progress
from kubeloop.meta import Resource
from kubeloop.meta.type_checks import described
from kubeloop.timing import Clock
from kubeloop.transport import log_context, logger_with_context

R = TypeVar("R", bound=Resource)
Create = Callable[[Coroutine[object, object, None], str], "asyncio.Task[None]"]

#: A handler that asks for resyncs more often gets them this often, in seconds.
MIN_RESYNC = 1.0

_log = logger_with_context("kubeloop.cache")


@dataclass(frozen=True, slots=True)
class InformerDefaults:
    """What all informers of one factory share. ``resync``: period in seconds of handlers that name none; 0 is never.

    ``persistence``: where states of the past come from.
    """

    cluster: str
    clock: Clock
    progress: Progress
    resync: float = 0.0
    persistence: Persistence | None = None


class Fanout(Generic[R]):
    """The handlers of one informer. Their names are unique: a second "web" is "web#2"."""

    def __init__(
        self, what: str, around: InformerDefaults, view: View[R], synced: Callable[[], bool], resync: Callable[[Registration[R]], None]
    ) -> None:
        """``view`` is for events. ``synced``: whether the informer is; raises where waiting is hopeless. ``resync``: a handler's is due."""
        self._what = what
        self._around = around
        self._view = view
        self._synced = synced
        self._resync = resync
        self._create: Create | None = None
        #: The handlers that have not been removed; another list after each change.
        self.audience: list[Registration[R]] = []
        self._piles = DuplicateInformerCheck()

    @property
    def registrations(self) -> list[Registration[R]]:
        """The handlers that have not been removed."""
        return list(self.audience)

    @property
    def pending(self) -> int:
        """Events that wait for the slowest handler."""
        return max((registration.pending for registration in self.audience), default=0)

    def add(self, calls: Callbacks[R]) -> Registration[R]:
        """A new handler; it hears nothing before it is told.

        Raises:
            TypeError: one of its functions is none.
        """
        functions: dict[str, object] = {"added": calls.added, "updated": calls.updated, "deleted": calls.deleted, "where": calls.where}
        for what, function in functions.items():
            if function is not None and not callable(function):
                wanted = "head" if what == "where" else "event"
                raise TypeError(
                    f"{what}={described(function)} is no function; give one that takes the {wanted}: {what}=lambda {wanted}: ..."
                )
        first = next((handler for handler in (calls.added, calls.updated, calls.deleted) if handler is not None), None)
        name = self._unique(calls.name or str(getattr(first, "__qualname__", first)))
        period = calls.resync
        if 0 < period < MIN_RESYNC:
            _log.warning("handler %s of %s: a resync every %g s is too often; it is every %g s", name, self._what, period, MIN_RESYNC)
            period = MIN_RESYNC
        calls = replace(calls, name=name, resync=max(period, 0.0))
        registration = Registration(calls, self._around.clock, self._around.progress, self._synced, self._removed)
        # Another list, not this one changed: a handler may be added or removed while events are told.
        self.audience = [*self.audience, registration]
        if self._create is not None:
            if calls.resync:
                _log.info("handler %s of %s came late; its resyncs are every %g s from now", name, self._what, calls.resync)
            self._start(self._create, registration)
        return registration

    def start(self, create: Create) -> None:
        """Run the handlers that are here, and those that come, in tasks made by ``create``."""
        self._create = create
        for registration in self.audience:
            self._start(create, registration)

    def stop(self) -> None:
        """Drop what waits, and let no handler be called again."""
        for registration in self.audience:
            registration.remove()

    def tell(self, event: Event[R], handler: object = None) -> None:
        """All handlers, or one, hear of it when their turn comes; after ``deliver``."""
        for registration in self.audience:
            if handler is None or handler is registration:
                registration.offer(event)

    def deliver(self, *, at_once: bool = False) -> None:
        """That was all that is to be told for now. ``at_once``: whoever is free may be called here and now."""
        for registration in self.audience:
            registration.deliver(at_once=at_once)

    def replay(self, kind: EventType, heads: Snapshot, received: float, handler: object = None) -> None:
        """All handlers, or one, hear of each of these, one after the other."""
        for registration in self.audience:
            if handler is None or handler is registration:
                registration.replay(Replay(kind, heads, self._view, received))

    def initial_end(self) -> None:
        """What all handlers were told so far is their initial state."""
        for registration in self.audience:
            registration.initial_end()

    def _unique(self, name: str) -> str:
        taken = {registration.name for registration in self.audience}
        number, wanted = 1, name
        while name in taken:
            number += 1
            name = f"{wanted}#{number}"
        self._piles.handlers(wanted, number, self._what)
        return name

    def _removed(self, registration: Registration[R]) -> None:
        self.audience = [each for each in self.audience if each is not registration]

    def _start(self, create: Create, registration: Registration[R]) -> None:
        create(self._handle(registration), f"kubeloop handler {registration.name} of {self._what}")
        if registration.resync:
            registration.timer = create(self._resyncs(registration), f"kubeloop resync of {self._what}")

    async def _handle(self, registration: Registration[R]) -> None:
        with log_context(cluster=self._around.cluster, informer=self._what, handler=registration.name):
            await registration.run()

    async def _resyncs(self, registration: Registration[R]) -> None:
        while registration.active:
            await self._around.clock.sleep(registration.resync)
            self._resync(registration)
