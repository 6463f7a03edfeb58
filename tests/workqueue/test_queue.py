"""Work queue: order, one worker per item, re-entry, shut-down and drain (behaviours H100-H107)."""

import asyncio
import gc
import weakref

import pytest

from kubeloop.timing import FakeClock
from kubeloop.workqueue import QueueShutDown, WorkQueue


@pytest.fixture
def queue() -> WorkQueue[str]:
    return WorkQueue(clock=FakeClock())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_item_added_n_times_before_it_is_taken_is_handed_out_once(queue: WorkQueue[str]) -> None:
    """H100"""
    for _ in range(5):
        queue.add("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0
    assert queue.stats.adds == 1


async def test_an_item_added_while_it_is_processed_is_not_handed_to_a_second_worker(queue: WorkQueue[str]) -> None:
    """H101"""
    queue.add("a")
    assert await queue.get() == "a"
    second = asyncio.ensure_future(queue.get())
    queue.add("a")
    queue.add("a")
    await settle()
    assert not second.done()
    queue.done("a")
    assert await second == "a"


async def test_an_item_added_while_it_is_processed_comes_back_exactly_once_after_done(queue: WorkQueue[str]) -> None:
    """H101"""
    queue.add("a")
    await queue.get()
    for _ in range(5):
        queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert len(queue) == 1
    await queue.get()
    queue.done("a")
    assert len(queue) == 0


async def test_order_is_first_in_first_out_by_first_addition(queue: WorkQueue[str]) -> None:
    """H102"""
    for item in "abcab":
        queue.add(item)
    assert [await queue.get() for _ in range(3)] == ["a", "b", "c"]


async def test_an_item_re_added_while_processed_goes_to_the_end_of_the_line(queue: WorkQueue[str]) -> None:
    """H101, H102"""
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("b")
    queue.done("a")
    assert [await queue.get(), await queue.get()] == ["b", "a"]


async def test_length_counts_waiting_items_only(queue: WorkQueue[str]) -> None:
    """H102"""
    queue.add("a")
    queue.add("b")
    assert len(queue) == 2
    await queue.get()
    queue.add("a")
    assert len(queue) == 1
    queue.add_after("c", 10)
    assert len(queue) == 1
    assert queue.stats == (1, 1, 1, 3, 0)


async def test_add_after_shut_down_is_ignored(queue: WorkQueue[str]) -> None:
    """H103"""
    queue.shut_down()
    queue.add("a")
    assert len(queue) == 0
    with pytest.raises(QueueShutDown):
        await queue.get()


async def test_workers_get_every_waiting_item_and_only_then_the_shutdown_signal(queue: WorkQueue[str]) -> None:
    """H103"""
    queue.add("a")
    queue.add("b")
    queue.shut_down()
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    with pytest.raises(QueueShutDown):
        await queue.get()


async def test_shut_down_wakes_every_waiting_worker(queue: WorkQueue[str]) -> None:
    """H103"""
    workers = [asyncio.ensure_future(queue.get()) for _ in range(3)]
    await settle()
    queue.shut_down()
    results = await asyncio.gather(*workers, return_exceptions=True)
    assert [type(result) for result in results] == [QueueShutDown] * 3


async def test_drain_waits_until_every_item_in_processing_is_done(queue: WorkQueue[str]) -> None:
    """H104"""
    queue.add("a")
    queue.add("b")
    await queue.get(), await queue.get()
    drained = asyncio.ensure_future(queue.drain())
    await settle()
    queue.done("a")
    await settle()
    assert not drained.done()
    queue.done("b")
    await settle()
    assert drained.done()


async def test_an_item_made_dirty_before_a_drain_is_delivered_again_and_must_be_done_before_it_ends(queue: WorkQueue[str]) -> None:
    """H105"""
    queue.add("a")
    await queue.get()
    queue.add("a")
    drained = asyncio.ensure_future(queue.drain())
    await settle()
    queue.done("a")
    await settle()
    assert not drained.done()
    assert await queue.get() == "a"
    queue.done("a")
    await settle()
    assert drained.done()


async def test_shut_down_after_drain_ends_the_drain_at_once(queue: WorkQueue[str]) -> None:
    """H106"""
    queue.add("a")
    await queue.get()
    drained = asyncio.ensure_future(queue.drain())
    await settle()
    queue.shut_down()
    await settle()
    assert drained.done()


async def test_an_empty_queue_drains_at_once(queue: WorkQueue[str]) -> None:
    """H104"""
    await asyncio.wait_for(queue.drain(), 1)
    assert queue.shutting_down


async def test_the_queue_keeps_no_reference_to_an_item_after_done() -> None:
    """H107"""

    class Item:
        pass

    queue: WorkQueue[Item] = WorkQueue(clock=FakeClock())
    item = Item()
    gone = weakref.ref(item)
    queue.add(item)
    queue.add_after(item, -1)
    queue.add_rate_limited(item)
    queue.forget(item)
    taken = await queue.get()
    queue.done(taken)
    queue.shut_down()
    del item, taken
    gc.collect()
    assert gone() is None


async def test_done_without_get_is_refused(queue: WorkQueue[str]) -> None:
    with pytest.raises(ValueError, match="without a get"):
        queue.done("a")


async def test_a_cancelled_worker_passes_its_wake_up_on(queue: WorkQueue[str]) -> None:
    first = asyncio.ensure_future(queue.get())
    second = asyncio.ensure_future(queue.get())
    await settle()
    queue.add("a")  # Wakes the first, which is cancelled before it runs.
    first.cancel()
    assert await asyncio.wait_for(second, 1) == "a"


async def test_a_worker_cancelled_while_it_waits_takes_nothing(queue: WorkQueue[str]) -> None:
    worker = asyncio.ensure_future(queue.get())
    await settle()
    worker.cancel()
    queue.add("a")
    await asyncio.wait([worker])
    assert await queue.get() == "a"


async def test_many_workers_never_hold_one_item_twice() -> None:
    """H101"""
    queue: WorkQueue[int] = WorkQueue(clock=FakeClock())
    held: set[int] = set()
    handed_out = 0

    async def work() -> None:
        nonlocal handed_out
        while True:
            try:
                item = await queue.get()
            except QueueShutDown:
                return
            assert item not in held
            held.add(item)
            handed_out += 1
            await asyncio.sleep(0)
            held.discard(item)
            queue.done(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(work())
        for round_ in range(200):
            queue.add(round_ % 7)
            if round_ % 3 == 0:
                await asyncio.sleep(0)
        await queue.drain()
    assert 7 <= handed_out <= 200
    assert queue.stats.processing == 0


async def test_an_item_added_again_while_it_waits_keeps_its_place_and_while_processed_is_not_in_line(
    queue: WorkQueue[str],
) -> None:
    """H108"""
    for item in ("a", "b", "a"):
        queue.add(item)
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 1
    queue.done("a")
    assert [await queue.get(), await queue.get()] == ["b", "a"]


async def test_priorities_are_ignored(queue: WorkQueue[str]) -> None:
    queue.add("a", priority=-5)
    queue.add("b", priority=5)
    queue.add_after("c", 0, priority=9)
    assert [await queue.get() for _ in range(3)] == ["a", "b", "c"]
    assert queue.priority_of("b") == 0
