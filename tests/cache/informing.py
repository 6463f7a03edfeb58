"""A synced informer of config maps with a handler that remembers, for tests of what it asks a server and tells its handlers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import Event, Informer, Informers, WatchPolicy
from kubeloop.client import Client
from kubeloop.timing import FakeClock
from tests.cache.source import Source, until


class Seen:
    """A handler that remembers."""

    def __init__(self) -> None:
        self.events: list[Event[ConfigMap]] = []

    def __call__(self, event: Event[ConfigMap]) -> None:
        self.events.append(event)

    @property
    def lines(self) -> list[str]:
        return [f"{event.type.value} {event.key.name}{' (tombstone)' if event.tombstone else ''}" for event in self.events]


@asynccontextmanager
async def informing(
    client: Client, clock: FakeClock, policy: WatchPolicy | None = None, **options: object
) -> AsyncIterator[tuple[Informer[ConfigMap], Seen]]:
    """A running informer, whatever it has got to; ``options`` are those of ``Informers.of``."""
    seen = Seen()
    async with Informers(client, clock=clock, rng=random.Random(1), policy=policy) as informers:
        maps = informers.of(ConfigMap, **options)  # type: ignore[arg-type]  # options are of's own
        maps.on_event(added=seen, updated=seen, deleted=seen)
        yield maps, seen


@asynccontextmanager
async def informed(
    client: Client, clock: FakeClock, policy: WatchPolicy | None = None, **options: object
) -> AsyncIterator[tuple[Informer[ConfigMap], Seen]]:
    """The same, synced, with all initial events seen."""
    async with informing(client, clock, policy, **options) as (maps, seen):
        for registration in maps.registrations:
            await registration.wait_synced()
        yield maps, seen


async def paused(source: Source, clock: FakeClock) -> None:
    """Until the watch is gone and only the back-off is waited for."""
    await until(lambda: not source.watches and clock.waiting == 1)


async def passing(clock: FakeClock, condition: Callable[[], object], step: float = 1.0) -> None:
    """Let time and I/O pass until ``condition()``; fail after five real seconds."""
    async with asyncio.timeout(5):
        while not condition():
            await clock.advance(step)
            await asyncio.sleep(0.002)
