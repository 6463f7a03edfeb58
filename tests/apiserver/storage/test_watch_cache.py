"""The watch cache: its window after a start on a stored history, its subscriptions, and waits for a revision."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from kubeloop.apiserver.storage import KeyValue, MemoryStorage, StorageFailed, watch_cache
from kubeloop.apiserver.storage.watch_cache import ResourceVersionTooOld, Subscription, WatchCache

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
    with pytest.raises(ResourceVersionTooOld, match="changes after revision 4 are no longer kept; the oldest is 5") as refused:
        cache.since(PREFIX, 4)
    assert (refused.value.revision, refused.value.oldest) == (4, 5)
    await cache.stop()


@asynccontextmanager
async def started() -> AsyncIterator[tuple[MemoryStorage, WatchCache]]:
    """An empty storage and its cache."""
    storage = MemoryStorage()
    cache = WatchCache(storage)
    await cache.start()
    try:
        yield storage, cache
    finally:
        await cache.stop()
        await storage.close()


async def write(storage: MemoryStorage, cache: WatchCache, *names: str, value: bytes = b"{}") -> None:
    """Create ConfigMaps, and wait until the cache has distributed them."""
    for name in names:
        written = await storage.write(f"{PREFIX}{name}", value, expected=0)
        await cache.wait_until(written.revision)


async def receive(subscription: Subscription) -> list[str]:
    """The names of the changes that a subscription receives next."""
    async with asyncio.timeout(5):
        return [event.key.removeprefix(PREFIX) for event in await subscription.receive()]


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        pytest.param(PREFIX, ["a/x", "b/x", "a/y"], id="of a resource: those of all its namespaces, in order"),
        pytest.param(f"{PREFIX}a/", ["a/x", "a/y"], id="of a namespace: only its own"),
        pytest.param("/registry/core/secrets/", [], id="of another resource: none"),
    ],
)
async def test_a_subscription_receives_changes(prefix: str, expected: list[str]) -> None:
    async with started() as (storage, cache):
        subscription = cache.subscribe(prefix)
        await write(storage, cache, "a/x", "b/x", "a/y")
        assert subscription.waiting == bool(expected)
        subscription.end()
        assert await receive(subscription) == expected


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        pytest.param(lambda cache, subscription: subscription.offer(cache.since(PREFIX, 0)[0]), ["a/x"], id="by a change"),
        pytest.param(lambda cache, subscription: subscription.wake(), [], id="by a wake-up, with nothing"),
        pytest.param(lambda cache, subscription: subscription.end(), [], id="by its end, with nothing"),
        pytest.param(lambda cache, subscription: cache.end(PREFIX), [], id="by the end of its resource, with nothing"),
    ],
)
async def test_a_subscriber_that_waits_is_woken(act: Callable[[WatchCache, Subscription], None], expected: list[str]) -> None:
    async with started() as (storage, cache):
        await write(storage, cache, "a/x")
        subscription = cache.subscribe(PREFIX)
        receiving = asyncio.create_task(receive(subscription))
        await asyncio.sleep(0)
        act(cache, subscription)
        assert await receiving == expected


async def test_a_wake_up_ends_one_wait_only() -> None:
    async with started() as (storage, cache):
        subscription = cache.subscribe(PREFIX)
        subscription.wake()
        assert await receive(subscription) == []
        receiving = asyncio.create_task(receive(subscription))
        await write(storage, cache, "a/x")
        assert await receiving == ["a/x"]


async def test_a_closed_subscription_gets_nothing_more_and_the_others_do() -> None:
    async with started() as (storage, cache):
        closed, other = cache.subscribe(PREFIX), cache.subscribe(f"{PREFIX}a/")
        closed.close()
        await write(storage, cache, "a/x")
        assert (closed.waiting, other.waiting) == (False, True)
        assert cache.subscriptions(PREFIX) == [other]
        for subscription in (other, closed):
            subscription.close()  # also a second time
        assert cache.subscriptions(PREFIX) == []


@pytest.mark.parametrize(
    ("bound", "limit"),
    [pytest.param("MOST_WAITING", 2, id="by the number of changes"), pytest.param("MOST_BYTES", 4, id="by their bytes")],
)
async def test_a_subscriber_that_is_too_slow_is_cut_off(monkeypatch: pytest.MonkeyPatch, bound: str, limit: int) -> None:
    monkeypatch.setattr(watch_cache, bound, limit)
    async with started() as (storage, cache):
        subscription = cache.subscribe(PREFIX)
        await write(storage, cache, "a/x", "a/y")  # of two bytes each
        assert not subscription.cut
        assert await receive(subscription) == ["a/x", "a/y"]
        await write(storage, cache, "b/x", "b/y", "b/z")
        assert (subscription.cut, subscription.ended) == (True, True)
        assert await receive(subscription) == []


async def test_many_bytes_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_cache, "_BYTES_AT_ONCE", 4)
    monkeypatch.setattr(watch_cache, "MOST_BYTES", 11)
    async with started() as (storage, cache):
        subscription = cache.subscribe(PREFIX)
        await write(storage, cache, "a/1", "a/2", "a/3", "a/4", "a/5")
        assert await receive(subscription) == ["a/1", "a/2"]
        await write(storage, cache, "a/6", "a/7")  # what was received does not count any more
        assert [await receive(subscription) for _ in range(3)] == [["a/3", "a/4"], ["a/5", "a/6"], ["a/7"]]
        assert not subscription.cut


async def test_the_state_after_a_change() -> None:
    async with started() as (storage, cache):
        key = f"{PREFIX}a/x"
        for value, expected in ((b"1", 0), (b"2", 2), (None, 3)):
            await storage.write(key, value, expected=expected)
        await cache.wait_until(4)
        created, changed, deleted = (event.current() for event in cache.since(PREFIX, 1))
        assert created == KeyValue(key, b"1", 2, 2)
        assert changed == KeyValue(key, b"2", 2, 3)
        assert deleted == KeyValue(key, b"2", 2, 4), "the last state, with the revision of the deletion"


async def test_encoded_frames_are_cached_until_the_event_is_old() -> None:
    async with started() as (storage, cache):
        await write(storage, cache, "a/x")
        (event,) = cache.since(PREFIX, 0)
        numbers = itertools.count(1)
        assert [event.cached("json", lambda: next(numbers)) for _ in range(2)] == [1, 1]
        assert event.cached("yaml", lambda: next(numbers)) == 2
        event.forget()
        assert [event.cached("json", lambda: next(numbers)) for _ in range(2)] == [3, 4]


async def test_only_the_newest_events_have_cached_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_cache, "_MOST_FRAMES", 2)
    async with started() as (storage, cache):
        await write(storage, cache, "a/x", "a/y", "a/z")
        numbers = itertools.count(1)
        made = [
            (event.cached("json", lambda: next(numbers)), event.cached("json", lambda: next(numbers))) for event in cache.since(PREFIX, 1)
        ]
        assert made == [(1, 2), (3, 3), (4, 4)]


async def test_a_trimmed_window_begins_after_the_revision() -> None:
    async with started() as (storage, cache):
        await write(storage, cache, "a/x", "a/y", "a/z")
        cache.trim(3)
        assert [event.revision for event in cache.since(PREFIX, 3)] == [4]
        cache.trim(2)  # an older compaction that comes late
        assert cache.oldest == 3


async def test_an_observer_sees_a_change_before_the_revision_includes_it() -> None:
    async with started() as (storage, cache):
        seen: list[tuple[int, int]] = []
        cache.observe(PREFIX, lambda event: seen.append((event.revision, cache.revision)))
        await write(storage, cache, "a/x", "a/y")
        await storage.write("/registry/core/secrets/a/x", b"{}", expected=0)
        assert seen == [(2, 1), (3, 2)]


async def test_a_wait_for_a_revision_ends_when_it_is_distributed_and_not_before() -> None:
    async with started() as (storage, cache):
        early, late = (asyncio.create_task(cache.wait_until(revision)) for revision in (2, 3))
        await write(storage, cache, "a/x")
        await early
        assert not late.done()
        await write(storage, cache, "a/y")
        await late


async def test_a_cache_that_stops_ends_its_waits_and_subscriptions() -> None:
    async with started() as (_, cache):
        subscription, waiting = cache.subscribe(PREFIX), asyncio.create_task(cache.wait_until(9))
        await asyncio.sleep(0)
        await cache.stop()
        await asyncio.wait({waiting}, timeout=5)
        assert waiting.cancelled()
        assert await receive(subscription) == []


async def test_a_cache_whose_storage_ends_fails_waits_and_ends_subscriptions() -> None:
    async with started() as (storage, cache):
        subscription, waiting = cache.subscribe(PREFIX), asyncio.create_task(cache.wait_until(9))
        await asyncio.sleep(0)
        await storage.close()
        for wait in (waiting, cache.wait_until(9)):
            with pytest.raises(StorageFailed, match=r"\(the storage ended\); restart the server"):
                await asyncio.wait_for(wait, 5)
        assert await receive(subscription) == []
        await cache.wait_until(1)  # what was distributed before still counts
