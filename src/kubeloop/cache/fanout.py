"""Fan-out: who hears of an informer's changes. Each handler has a buffer and a resync pace of its own; none waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Generic, TypeVar

from kubeloop.cache.event import Event
from kubeloop.cache.progress import Progress
from kubeloop.cache.registration import Handler, Registration
from kubeloop.meta import Resource
from kubeloop.timing import Clock
from kubeloop.transport import log_context, logger_with_context

R = TypeVar("R", bound=Resource)
Create = Callable[[Coroutine[object, object, None], str], "asyncio.Task[None]"]

#: A handler that asks for resyncs more often gets them this often, in seconds.
MIN_RESYNC = 1.0

_log = logger_with_context("kubeloop.cache")


@dataclass(frozen=True, slots=True)
class Around:
    """What all informers of one factory share. ``resync``: period in seconds of handlers that name none; 0 is never."""

    cluster: str
    clock: Clock
    progress: Progress
    resync: float = 0.0


class Fanout(Generic[R]):
    """The handlers of one informer."""

    def __init__(self, what: str, around: Around, resync: Callable[[Registration[R]], None]) -> None:
        """``resync`` is called when a handler's resync is due."""
        self._what = what
        self._around = around
        self._resync = resync
        self._create: Create | None = None
        self._registrations: list[Registration[R]] = []

    @property
    def registrations(self) -> list[Registration[R]]:
        """The handlers that have not been removed."""
        return [each for each in self._registrations if each.active]

    @property
    def pending(self) -> int:
        """Events that wait for the slowest handler."""
        return max((registration.pending for registration in self._registrations), default=0)

    def add(
        self, added: Handler[R] | None, updated: Handler[R] | None, deleted: Handler[R] | None, resync: float | None, name: str
    ) -> Registration[R]:
        """A new handler; it hears nothing before it is told."""
        first = next((handler for handler in (added, updated, deleted) if handler is not None), None)
        name = name or str(getattr(first, "__qualname__", first))
        period = self._around.resync if resync is None else resync
        period = max(period, MIN_RESYNC) if period > 0 else 0.0
        registration = Registration(name, self._around.clock, self._around.progress, period, added, updated, deleted)
        self._registrations = [*self.registrations, registration]
        if self._create is not None:
            self._start(self._create, registration)
        return registration

    def start(self, create: Create) -> None:
        """Run the handlers that are here, and those that come, in tasks made by ``create``."""
        self._create = create
        for registration in self._registrations:
            self._start(create, registration)

    def tell(self, event: Event[R], handler: object = None) -> None:
        """All handlers, or one, hear of it when their turn comes."""
        for registration in self._registrations:
            if handler is None or handler is registration:
                registration.offer(event)

    def initial_end(self) -> None:
        """What all handlers were told so far is their initial state."""
        for registration in self._registrations:
            registration.initial_end()

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
