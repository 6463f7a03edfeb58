"""What every implementation of ``Storage`` must do. New implementations join ``IMPLEMENTATIONS``; the sentences stay the same."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from kubeloop.apiserver.storage import Compacted, FutureRevision, KeyValue, MemoryStorage, Storage, StorageEvent, prefix_end
from kubeloop.apiserver.storage.sqlite import SqliteStorage
from kubeloop.timing import Clock, FakeClock


async def in_memory(folder: Path, clock: Clock) -> Storage:
    return MemoryStorage(clock)


IMPLEMENTATIONS: dict[str, Callable[[Path, Clock], Awaitable[Storage]]] = {
    "memory": in_memory,
    "sqlite": SqliteStorage.open,
    "sqlite without fsync": functools.partial(SqliteStorage.open, synced=False),
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=list(IMPLEMENTATIONS))
async def storage(request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Storage]:
    made = await IMPLEMENTATIONS[request.param](tmp_path, clock)
    yield made
    await made.close()


async def put(storage: Storage, key: str, value: bytes, expected: int = 0) -> int:
    written = await storage.write(key, value, expected=expected)
    assert written.succeeded
    return written.revision


async def take(storage: Storage, prefix: str, start: int, count: int) -> list[StorageEvent]:
    found: list[StorageEvent] = []
    async with asyncio.timeout(5), storage.watch(prefix, start) as stream:
        async for batch in stream:
            found += batch
            if len(found) >= count:
                break
    return found


async def keys(storage: Storage, revision: int = 0, limit: int = 0, start: str = "/a/", end: str = "/a0") -> list[str]:
    return [kv.key for kv in (await storage.range(start, end, revision=revision, limit=limit)).items]


async def test_an_empty_store_is_at_revision_one(storage: Storage) -> None:
    assert await storage.revision() == 1
    assert await storage.range("/", "0") == ([], 1, 0, False)


async def test_every_change_raises_the_revision_by_one(storage: Storage) -> None:
    assert await put(storage, "/a/x", b"1") == 2
    assert await put(storage, "/b/x", b"1") == 3
    assert (await storage.write("/a/x", None, expected=2)).revision == 4
    assert await storage.revision() == 4


async def test_a_write_keeps_the_revision_of_creation(storage: Storage) -> None:
    created = await put(storage, "/a/x", b"1")
    changed = await put(storage, "/a/x", b"2", created)
    found, at = await storage.get("/a/x")
    assert found == KeyValue("/a/x", b"2", created, changed)
    assert at == changed


async def test_a_write_of_another_revision_than_expected_changes_nothing_and_returns_the_stored_one(storage: Storage) -> None:
    created = await put(storage, "/a/x", b"1")
    refused = await storage.write("/a/x", b"2", expected=0)
    assert (refused.succeeded, refused.revision, refused.current) == (False, created, KeyValue("/a/x", b"1", created, created))
    assert not (await storage.write("/a/x", b"2", expected=created + 5)).succeeded
    assert not (await storage.write("/a/y", b"2", expected=created)).succeeded
    assert await storage.revision() == created


async def test_deleting_a_missing_key_succeeds_without_a_revision(storage: Storage) -> None:
    assert await storage.write("/a/x", None, expected=0) == (True, 1, None)


async def test_a_key_that_comes_back_is_created_again(storage: Storage) -> None:
    first = await put(storage, "/a/x", b"1")
    await storage.write("/a/x", None, expected=first)
    again = await put(storage, "/a/x", b"2")
    found, _ = await storage.get("/a/x")
    assert found is not None
    assert found.create_revision == again == first + 2


async def test_a_range_is_sorted_and_holds_its_start_but_not_its_end(storage: Storage) -> None:
    for key in ("/a/z", "/a/b", "/b/a", "/a/a"):
        await put(storage, key, b"")
    assert await keys(storage, start="/a/a", end="/a/z") == ["/a/a", "/a/b"]
    assert await keys(storage, start="/a/", end=prefix_end("/a/")) == ["/a/a", "/a/b", "/a/z"]


async def test_a_range_at_a_revision_shows_what_was_then(storage: Storage) -> None:
    x = await put(storage, "/a/x", b"1")
    y = await put(storage, "/a/y", b"1")
    await put(storage, "/a/x", b"2", x)
    await storage.write("/a/y", None, expected=y)
    await put(storage, "/a/z", b"1")
    then = await storage.range("/a/", "/a0", revision=y)
    assert [(kv.key, kv.value) for kv in then.items] == [("/a/x", b"1"), ("/a/y", b"1")]
    assert (then.revision, then.total, then.more) == (y, 2, False)
    assert await keys(storage) == ["/a/x", "/a/z"]


async def test_a_limit_cuts_the_range_and_the_total_counts_all(storage: Storage) -> None:
    for name in "abcde":
        await put(storage, f"/a/{name}", b"")
    page = await storage.range("/a/", "/a0", limit=2)
    assert ([kv.key for kv in page.items], page.total, page.more) == (["/a/a", "/a/b"], 5, True)
    rest = await storage.range("/a/b\0", "/a0", limit=3)
    assert ([kv.key for kv in rest.items], rest.total, rest.more) == (["/a/c", "/a/d", "/a/e"], 3, False)


async def test_the_total_of_an_older_revision_counts_what_was_there_then(storage: Storage) -> None:
    a = await put(storage, "/a/a", b"")
    at = await put(storage, "/a/b", b"")
    await put(storage, "/a/c", b"")
    await storage.write("/a/a", None, expected=a)
    assert (await storage.range("/a/", "/a0", revision=at, limit=1)).total == 2
    assert (await storage.range("/a/a", "/a/c", revision=at)).total == 2, "a range that starts with the deleted key"
    assert (await storage.range("/a/c", "/a0", revision=at)).total == 0, "a range that starts with the later key"


async def test_a_revision_to_come_is_refused(storage: Storage) -> None:
    with pytest.raises(FutureRevision):
        await storage.range("/a/", "/a0", revision=2)
    with pytest.raises(FutureRevision) as refused:
        await storage.get("/a/x", 7)
    assert (refused.value.revision, refused.value.current) == (7, 1)


async def test_a_watch_shows_history_from_its_start_then_what_happens(storage: Storage) -> None:
    first = await put(storage, "/a/x", b"1")
    await put(storage, "/b/x", b"1")
    watching = asyncio.create_task(take(storage, "/a/", first, 3))
    await asyncio.sleep(0)
    second = await put(storage, "/a/x", b"2", first)
    await storage.write("/a/x", None, expected=second)
    found = await watching
    assert [(event.revision, event.value) for event in found] == [(2, b"1"), (4, b"2"), (5, None)]
    assert [event.previous and event.previous.value for event in found] == [None, b"1", b"2"]


async def test_a_watch_from_a_later_start_leaves_out_what_was_before(storage: Storage) -> None:
    first = await put(storage, "/a/x", b"1")
    await put(storage, "/a/x", b"2", first)
    assert [event.value for event in await take(storage, "/a/", first + 1, 1)] == [b"2"]


async def test_two_watches_see_the_same(storage: Storage) -> None:
    one, two = asyncio.create_task(take(storage, "/a/", 2, 2)), asyncio.create_task(take(storage, "/a/", 2, 2))
    await put(storage, "/a/x", b"1")
    await put(storage, "/a/y", b"1")
    assert await one == await two


async def test_closing_the_store_ends_its_watches(storage: Storage) -> None:
    async def drain() -> int:
        async with storage.watch("/a/", 2) as stream:
            return sum([len(batch) async for batch in stream])

    watching = asyncio.create_task(drain())
    await asyncio.sleep(0)
    await storage.close()
    assert await asyncio.wait_for(watching, 5) == 0


async def test_compaction_keeps_the_then_current_state_and_refuses_older_revisions(storage: Storage) -> None:
    x = await put(storage, "/a/x", b"1")
    await put(storage, "/a/y", b"1")
    at = await put(storage, "/a/x", b"2", x)
    await put(storage, "/a/z", b"1")
    await storage.compact(at)
    assert await keys(storage, at) == ["/a/x", "/a/y"]
    assert await keys(storage) == ["/a/x", "/a/y", "/a/z"]
    for revision in (x, at - 1):
        with pytest.raises(Compacted) as refused:
            await storage.range("/a/", "/a0", revision=revision)
        assert refused.value.oldest == at


async def test_compaction_removes_deleted_keys_permanently(storage: Storage) -> None:
    x = await put(storage, "/a/x", b"1")
    await storage.write("/a/x", None, expected=x)
    await put(storage, "/a/y", b"1")
    await storage.compact(await storage.revision())
    assert await keys(storage) == ["/a/y"]
    await put(storage, "/a/x", b"2")
    assert await keys(storage) == ["/a/x", "/a/y"]


async def test_compacting_twice_or_into_the_future_is_refused(storage: Storage) -> None:
    at = await put(storage, "/a/x", b"1")
    await storage.compact(at)
    with pytest.raises(Compacted):
        await storage.compact(at)
    with pytest.raises(FutureRevision):
        await storage.compact(at + 1)


async def test_a_watch_of_compacted_history_is_refused(storage: Storage) -> None:
    first = await put(storage, "/a/x", b"1")
    second = await put(storage, "/a/x", b"2", first)
    await storage.compact(second)
    for start in (first, second):  # the state at the revision of the compaction remains, but not the change that led to it
        with pytest.raises(Compacted):
            await take(storage, "/a/", start, 1)
    third = await put(storage, "/a/x", b"3", second)
    assert [event.revision for event in await take(storage, "/a/", second + 1, 1)] == [third]


async def test_a_lease_deletes_its_keys_when_it_ends_each_with_a_revision(storage: Storage, clock: FakeClock) -> None:
    lease = await storage.grant(10)
    for key in ("/a/x", "/a/y"):
        assert (await storage.write(key, b"1", expected=0, lease=lease)).succeeded
    before = await storage.revision()
    await clock.advance(9)
    assert await keys(storage) == ["/a/x", "/a/y"]
    await clock.advance(2)
    assert [(event.key, event.value) for event in await take(storage, "/a/", before + 1, 2)] == [("/a/x", None), ("/a/y", None)]
    assert await keys(storage) == []
    assert await storage.revision() == before + 2


async def test_a_lease_that_was_never_granted_or_has_ended_is_refused(storage: Storage, clock: FakeClock) -> None:
    lease = await storage.grant(10)
    await clock.advance(11)
    for one in (lease, 99):
        with pytest.raises(KeyError):
            await storage.write("/a/x", b"1", expected=0, lease=one)


async def test_a_key_written_again_without_its_lease_stays(storage: Storage, clock: FakeClock) -> None:
    lease = await storage.grant(10)
    first = (await storage.write("/a/x", b"1", expected=0, lease=lease)).revision
    await put(storage, "/a/x", b"2", first)
    await clock.advance(11)
    await put(storage, "/b/x", b"")
    assert await keys(storage) == ["/a/x"]


async def test_of_writes_that_expect_the_same_at_the_same_time_one_succeeds(storage: Storage) -> None:
    done = await asyncio.gather(*(storage.write("/a/x", str(number).encode(), expected=0) for number in range(5)))
    assert [one.succeeded for one in done] == [True, False, False, False, False]
    assert {one.current for one in done} == {KeyValue("/a/x", b"0", 2, 2)}
    assert await storage.revision() == 2


async def test_writes_that_come_together_each_have_a_revision_in_the_order_in_which_they_came(storage: Storage) -> None:
    done = await asyncio.gather(*(storage.write(f"/a/{number}", b"", expected=0) for number in range(5)))
    assert [one.revision for one in done] == [2, 3, 4, 5, 6]
    assert [event.key for event in await take(storage, "/a/", 2, 5)] == [f"/a/{number}" for number in range(5)]


async def test_the_oldest_revision_is_that_of_the_last_compaction(storage: Storage) -> None:
    assert await storage.oldest() == 1
    at = await put(storage, "/a/x", b"1")
    await storage.compact(at)
    assert await storage.oldest() == at
