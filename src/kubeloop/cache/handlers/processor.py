"""Processor: the handlers of one informer. Each has a buffer, so that no handler waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Generic, TypeVar

from kubeloop.cache.handlers.buffer import Replay
from kubeloop.cache.handlers.event import EventType, InformerEvent
from kubeloop.cache.handlers.registration import Callbacks, Registration
from kubeloop.cache.leaks import DuplicateInformerCheck
from kubeloop.cache.lister.view import CacheView
from kubeloop.cache.scope import InformerDefaults
from kubeloop.cache.store.store import Snapshot
from kubeloop.meta import Resource
from kubeloop.meta.type_checks import described
from kubeloop.transport import log_context, logger_with_context

R = TypeVar("R", bound=Resource)
Create = Callable[[Coroutine[object, object, None], str], "asyncio.Task[None]"]
"""Starts a task with a name."""

#: The shortest resync period in seconds. It replaces a shorter one.
MIN_RESYNC = 1.0

_LOG = logger_with_context("kubeloop.cache")


class Processor(Generic[R]):
    """Distributes the events of one informer to its handlers. Handler names are unique: a second "web" is "web#2"."""

    def __init__(self, description: str, defaults: InformerDefaults, view: CacheView[R], informer_synced: Callable[[], bool]) -> None:
        """Make a processor without handlers.

        Args:
            description: the informer's objects in words, for logs.
            defaults: clock, progress and cluster of the informer.
            view: decodes the objects of replayed events.
            informer_synced: whether the informer has synced; raises if it never will.
        """
        self._description = description
        self._defaults = defaults
        self._view = view
        self._informer_synced = informer_synced
        self._create: Create | None = None
        #: The handlers that have not been removed. Replaced, not changed: a handler may be added or removed while events are offered.
        self.audience: list[Registration[R]] = []
        self._duplicates = DuplicateInformerCheck()

    @property
    def registrations(self) -> list[Registration[R]]:
        """The handlers that have not been removed."""
        return list(self.audience)

    @property
    def pending(self) -> int:
        """Number of events that wait for the slowest handler."""
        return max((registration.pending for registration in self.audience), default=0)

    def add(self, callbacks: Callbacks[R]) -> Registration[R]:
        """Add a handler. It gets no event before ``offer`` or ``replay``.

        Raises:
            TypeError: one of the functions is not callable.
        """
        functions: dict[str, object] = {
            "added": callbacks.added,
            "updated": callbacks.updated,
            "deleted": callbacks.deleted,
            "predicate": callbacks.where,
        }
        for argument, function in functions.items():
            if function is not None and not callable(function):
                parameter = "head" if argument == "predicate" else "event"
                raise TypeError(
                    f"{argument}={described(function)} is not a function; "
                    f"give a function of the {parameter}: {argument}=lambda {parameter}: ..."
                )
        first = next((handler for handler in (callbacks.added, callbacks.updated, callbacks.deleted) if handler is not None), None)
        name = self._unique(callbacks.name or str(getattr(first, "__qualname__", first)))
        period = callbacks.resync
        if 0 < period < MIN_RESYNC:
            _LOG.warning("handler %s of %s: a resync period of %g s is too short; using %g s", name, self._description, period, MIN_RESYNC)
            period = MIN_RESYNC
        callbacks = replace(callbacks, name=name, resync=max(period, 0.0))
        registration = Registration(callbacks, self._defaults.clock, self._defaults.progress, self._informer_synced, self._discard)
        self.audience = [*self.audience, registration]
        if self._create is not None:
            if callbacks.resync:
                _LOG.info(
                    "handler %s of %s was added after the start; its resyncs are every %g s from now on",
                    name,
                    self._description,
                    callbacks.resync,
                )
            self._start(self._create, registration)
        return registration

    def start(self, create: Create) -> None:
        """Run the present handlers, and handlers that are added later, in tasks made by ``create``."""
        self._create = create
        for registration in self.audience:
            self._start(create, registration)

    def stop(self) -> None:
        """Drop the waiting events and remove all handlers."""
        for registration in self.audience:
            registration.remove()

    def offer(self, event: InformerEvent[R], handler: object = None) -> None:
        """Put an event into the buffer of one handler, or of all handlers. ``deliver`` wakes them afterwards."""
        for registration in self.audience:
            if handler is None or handler is registration:
                registration.offer(event)

    def deliver(self, *, at_once: bool = False) -> None:
        """Wake the handlers that have events. ``at_once``: a handler that is idle may be called immediately."""
        for registration in self.audience:
            registration.deliver(at_once=at_once)

    def replay(self, kind: EventType, heads: Snapshot, received: float, handler: object = None) -> None:
        """Offer each object of a snapshot to one handler, or to all, as an event.

        Args:
            kind: Type of the events.
            heads: The objects.
            received: Time of the events on the informer's clock, in seconds.
            handler: The registration to offer them to. None: all.
        """
        for registration in self.audience:
            if handler is None or handler is registration:
                registration.replay(Replay(kind, heads, self._view, received))

    def initial_end(self) -> None:
        """Mark the end of the initial state in the buffer of each handler."""
        for registration in self.audience:
            registration.initial_end()

    def _unique(self, name: str) -> str:
        taken = {registration.name for registration in self.audience}
        number, base = 1, name
        while name in taken:
            number += 1
            name = f"{base}#{number}"
        self._duplicates.handlers(base, number, self._description)
        return name

    def _discard(self, registration: Registration[R]) -> None:
        self.audience = [each for each in self.audience if each is not registration]

    def _start(self, create: Create, registration: Registration[R]) -> None:
        create(self._handle(registration), f"kubeloop handler {registration.name} of {self._description}")

    async def _handle(self, registration: Registration[R]) -> None:
        with log_context(cluster=self._defaults.cluster, informer=self._description, handler=registration.name):
            await registration.run()
