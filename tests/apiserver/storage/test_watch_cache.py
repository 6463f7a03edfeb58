"""How far back watches can go after a start on a store that was kept."""

from __future__ import annotations

import pytest

from kubeloop.apiserver.storage import MemoryStorage
from kubeloop.apiserver.storage.watch_cache import ResourceVersionTooOld, WatchCache

PREFIX = "/registry/core/configmaps/"


async def filled() -> MemoryStorage:
    """Four changes, at revisions 2 to 5."""
    storage = MemoryStorage()
    for number in range(4):
        await storage.write(f"{PREFIX}default/n{number}", b"{}", expected=0)
    return storage


@pytest.mark.parametrize(
    ("compacted", "since", "seen"),
    [
        pytest.param(0, 1, [2, 3, 4, 5], id="never compacted, it reaches back to the beginning"),
        pytest.param(0, 4, [5], id="only what came later is shown"),
        pytest.param(3, 3, [4, 5], id="it reaches back to the last compaction"),
    ],
)
async def test_a_window_with_history(compacted: int, since: int, seen: list[int]) -> None:
    storage = await filled()
    if compacted:
        await storage.compact(compacted)
    cache = WatchCache(storage)
    await cache.start(history=True)
    assert cache.revision == 5
    assert [event.revision for event in cache.since(PREFIX, since)] == seen
    with pytest.raises(ResourceVersionTooOld):
        cache.since(PREFIX, cache.oldest - 1)
    await cache.stop()


async def test_a_window_without_history_begins_at_the_start_as_a_kube_apiserver_s() -> None:
    cache = WatchCache(await filled())
    await cache.start()
    assert cache.since(PREFIX, 5) == []
    with pytest.raises(ResourceVersionTooOld):
        cache.since(PREFIX, 4)
    await cache.stop()
