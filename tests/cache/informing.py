"""A synced informer of config maps with a handler that remembers, for tests of what it asks a server and tells its handlers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import Informer, InformerEvent, InformerFactory, WatchPolicy
from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.head import Head, HeadReader, StringInterner
from kubeloop.cache.reflector.listwatch import ListWatch
from kubeloop.cache.scope import InformerScope
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.timing import Clock, FakeClock
from tests.cache.source import Source, until


class Seen:
    """A handler that remembers."""

    def __init__(self) -> None:
        self.events: list[InformerEvent[ConfigMap]] = []

    def __call__(self, event: InformerEvent[ConfigMap]) -> None:
        self.events.append(event)

    @property
    def lines(self) -> list[str]:
        return [f"{event.type.value} {event.key.name}{' (tombstone)' if event.tombstone else ''}" for event in self.events]


@asynccontextmanager
async def informing(
    client: Client, clock: FakeClock, policy: WatchPolicy | None = None, **options: object
) -> AsyncIterator[tuple[Informer[ConfigMap], Seen]]:
    """A running informer, whatever it has got to; ``options`` are those of ``InformerFactory.of``."""
    seen = Seen()
    async with InformerFactory(client, clock=clock, rng=random.Random(1), policy=policy) as informers:
        maps = informers.for_kind(ConfigMap, **{"namespace": ALL_NAMESPACES, **options})  # type: ignore[arg-type]  # options are of's own
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
    """Until the watch is gone and only the back-off is waited for. (A request in flight has a timer too, of a minute or more.)"""
    await until(lambda: not source.watches and clock.waiting == 1 and (clock.next_due or 0) < 60)


async def passing(clock: FakeClock, condition: Callable[[], object], step: float = 1.0) -> None:
    """Let time and I/O pass until ``condition()``; fail after five real seconds."""
    async with asyncio.timeout(5):
        while not condition():
            await clock.advance(step)
            await asyncio.sleep(0.002)


class Recorder:
    """A store without an informer that records its calls."""

    def __init__(self) -> None:
        self.reader = HeadReader(ConfigMap.api_version, ConfigMap.kind, (), BlobStore(), StringInterner())
        self.lines: list[str] = []
        self.failures: list[Exception] = []

    def before(self, namespace: str, name: str) -> Head | None:
        return None

    def begin_list(self) -> None: ...

    def replace(self, heads: list[Head], version: str) -> None:
        self.lines.append(f"replace {' '.join(head.name for head in heads)}")

    def change(self, head: Head) -> None:
        self.lines.append(f"change {head.name}")

    def remove(self, head: Head) -> None:
        self.lines.append(f"remove {head.name}")

    def bookmark(self, version: str) -> None:
        self.lines.append(f"bookmark {version}")

    def flush(self) -> None: ...

    def watching(self) -> None: ...

    def waiting(self, why: str) -> None: ...

    def failed(self, error: Exception) -> None:
        self.failures.append(error)


@asynccontextmanager
async def resumed(
    client: Client, clock: Clock, version: str, *, namespace: str | None = None, labels: dict[str, str] | None = None
) -> AsyncIterator[Recorder]:
    """A list and watch that begins from a state at ``version``."""
    recorder = Recorder()
    scope = InformerScope.for_kind(ConfigMap, namespace=namespace, label_selector=labels)
    listwatch = ListWatch(client, scope, namespace, clock, random.Random(1))
    task = asyncio.create_task(listwatch.run(recorder, version))
    try:
        yield recorder
    finally:
        task.cancel()
        await asyncio.wait([task])
