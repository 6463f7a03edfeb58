"""How far back a server remembers, by age and by number."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubeloop.apiserver.server.compaction import Compactor
from kubeloop.apiserver.storage import FutureRevision, MemoryStorage
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.tasks import Supervisor
from kubeloop.timing import FakeClock


class History:
    def __init__(self, storage: MemoryStorage, cache: WatchCache, compactor: Compactor) -> None:
        self.storage = storage
        self.cache = cache
        self.compactor = compactor

    async def write(self, count: int) -> None:
        for _ in range(count):
            revision = await self.storage.revision()
            await self.storage.write(f"/registry/core/configmaps/default/n{revision}", b"{}", expected=0)
        for _ in range(10):
            await asyncio.sleep(0)

    @property
    def kept(self) -> int:
        return self.cache.revision - self.cache.oldest


@asynccontextmanager
async def history(clock: FakeClock, seconds: float, revisions: int) -> AsyncIterator[History]:
    storage = MemoryStorage(clock)
    cache = WatchCache(storage)
    await cache.start()
    compactor = Compactor(storage, cache, clock, seconds, revisions)
    tasks = Supervisor(clock, logging.getLogger("test"))
    compactor.start(tasks)
    await asyncio.sleep(0)
    yield History(storage, cache, compactor)
    await compactor.stop()
    await cache.stop()
    await storage.close()


async def test_history_of_the_last_period_is_kept_and_none_older_than_two() -> None:
    clock = FakeClock()
    async with history(clock, 10, 0) as past:
        await past.write(5)
        await clock.advance(10)
        assert past.kept == 6
        await past.write(3)
        await clock.advance(9)
        assert past.kept == 9
        await clock.advance(1)
        assert past.kept == 3


@pytest.mark.parametrize("revisions", [1, 2, 10])
async def test_no_more_changes_are_kept_than_one_and_a_half_times_the_number_and_no_fewer_than_it(revisions: int) -> None:
    async with history(FakeClock(), 300, revisions) as past:
        for _ in range(40):
            await past.write(1)
            assert min(revisions, past.cache.revision) <= past.kept <= revisions + max(revisions // 2, 1)


async def test_what_the_watch_cache_has_not_read_yet_is_not_forgotten_before_it_has() -> None:
    async with history(FakeClock(), 300, 0) as past:
        for number in range(20):
            await past.storage.write(f"/registry/core/configmaps/default/n{number}", b"{}", expected=0)
        assert past.cache.revision < await past.storage.revision(), "the cache reads when its turn comes"
        await past.compactor.compact(await past.storage.revision())
        assert (past.kept, past.cache.revision) == (0, await past.storage.revision())
        await past.write(1)
        assert past.kept == 1


async def test_a_revision_that_does_not_exist_yet_cannot_be_compacted() -> None:
    async with history(FakeClock(), 300, 0) as past:
        with pytest.raises(FutureRevision):
            await past.compactor.compact(await past.storage.revision() + 1)
