"""The priority queue: order, raising, locking, delays, shut-down and drain (behaviours R212-R215)."""

import asyncio

import pytest

from kubeloop.timing import FakeClock
from kubeloop.workqueue import PriorityQueue, Queue, QueueShutDown, WorkQueue


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def queue(clock: FakeClock) -> PriorityQueue[str]:
    return PriorityQueue(clock=clock)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def take_all(queue: Queue[str]) -> list[str]:
    return [await queue.get() for _ in range(len(queue))]


def test_both_queues_are_what_controllers_ask_for() -> None:
    queues: list[Queue[str]] = [WorkQueue(clock=FakeClock()), PriorityQueue(clock=FakeClock())]
    assert [each.stats for each in queues] == [(0, 0, 0, 0, 0)] * 2


async def test_the_highest_priority_comes_first_and_within_one_who_came_first(queue: PriorityQueue[str]) -> None:
    """R212"""
    for item, priority in (("a", 0), ("b", -100), ("c", 5), ("d", 0), ("e", 5)):
        queue.add(item, priority=priority)
    assert await take_all(queue) == ["c", "e", "a", "d", "b"]


async def test_the_priority_at_which_an_item_was_handed_out_is_known_until_done(queue: PriorityQueue[str]) -> None:
    """R212, R206"""
    queue.add("a", priority=7)
    item = await queue.get()
    queue.add("a", priority=9)
    assert queue.priority_of(item) == 7
    queue.done("a")
    with pytest.raises(ValueError, match="without a get"):
        queue.priority_of("a")


async def test_added_again_an_item_keeps_the_highest_priority_and_is_handed_out_once(queue: PriorityQueue[str]) -> None:
    """R212"""
    for priority in (1, 2, -3):
        queue.add("a", priority=priority)
    assert len(queue) == 1
    assert await queue.get() == "a"
    assert queue.priority_of("a") == 2
    assert queue.stats.adds == 1


async def test_a_raised_item_goes_to_the_end_of_its_new_level(queue: PriorityQueue[str]) -> None:
    """R212"""
    queue.add("a")
    queue.add("b", priority=1)
    queue.add("a", priority=1)
    assert await take_all(queue) == ["b", "a"]


async def test_an_item_raised_taken_and_added_again_has_its_new_place_only(queue: PriorityQueue[str]) -> None:
    """R212"""
    for item in "ab":
        queue.add(item)
    queue.add("a", priority=1)
    assert await queue.get() == "a"
    queue.done("a")
    queue.add("a")
    assert await take_all(queue) == ["b", "a"]


async def test_of_two_delays_the_shorter_wins_and_of_two_priorities_the_higher(queue: PriorityQueue[str], clock: FakeClock) -> None:
    """T232, R212"""
    queue.add_after("a", 10, priority=1)
    queue.add_after("a", 20, priority=3)
    queue.add_after("a", 5, priority=2)
    await clock.advance(4.9)
    assert len(queue) == 0
    await clock.advance(0.2)
    assert await take_all(queue) == ["a"]
    assert queue.priority_of("a") == 3
    queue.done("a")
    await clock.advance(100)
    assert len(queue) == 0


async def test_a_delay_for_an_item_that_is_ready_only_raises_it(queue: PriorityQueue[str], clock: FakeClock) -> None:
    """R212"""
    queue.add("b", priority=1)
    queue.add("a")
    queue.add_after("a", 3600, priority=2)
    assert queue.stats.delayed == 0
    assert await take_all(queue) == ["a", "b"]
    assert clock.waiting == 0


async def test_an_item_is_ordered_by_when_it_became_ready(queue: PriorityQueue[str], clock: FakeClock) -> None:
    """R212"""
    queue.add_after("late", 2)
    queue.add_after("soon", 1)
    queue.add("now")
    await clock.advance(3)
    assert await take_all(queue) == ["now", "soon", "late"]


async def test_an_item_in_processing_is_locked_whatever_its_priority(queue: PriorityQueue[str]) -> None:
    """T232, R213"""
    queue.add("a")
    await queue.get()
    queue.add("a", priority=9)
    queue.add("b")
    assert await queue.get() == "b"
    second = asyncio.ensure_future(queue.get())
    await settle()
    assert not second.done()
    queue.done("a")
    assert await second == "a"
    assert queue.priority_of("a") == 9


async def test_an_item_keeps_its_place_while_it_is_locked(queue: PriorityQueue[str]) -> None:
    """R213"""
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("b")
    queue.done("a")
    assert await take_all(queue) == ["a", "b"]


async def test_length_counts_ready_items_only(queue: PriorityQueue[str]) -> None:
    """R214"""
    queue.add_after("a", 60)
    queue.add("b")
    queue.add_after("c", 60)
    queue.add("d")
    assert len(queue) == 2
    await queue.get()
    queue.add("b")
    assert len(queue) == 2
    assert queue.stats == (2, 1, 2, 3, 0)


async def test_an_item_whose_delay_is_removed_is_ready_once(queue: PriorityQueue[str], clock: FakeClock) -> None:
    """R214"""
    queue.add_after("a", 3600)
    queue.add("a", priority=1)
    assert queue.stats == (1, 0, 0, 1, 0)
    assert await queue.get() == "a"
    queue.done("a")
    await clock.advance(7200)
    assert len(queue) == 0


async def test_get_on_a_queue_that_is_shut_down_raises_at_once_though_items_are_ready(queue: PriorityQueue[str]) -> None:
    """R215"""
    queue.add("a")
    queue.shut_down()
    queue.shut_down()
    queue.add("b")
    queue.add_after("c", 1)
    for _ in range(2):
        with pytest.raises(QueueShutDown):
            await queue.get()


async def test_shut_down_wakes_every_waiting_worker(queue: PriorityQueue[str]) -> None:
    """R215"""
    workers = [asyncio.ensure_future(queue.get()) for _ in range(3)]
    await settle()
    queue.shut_down()
    results = await asyncio.gather(*workers, return_exceptions=True)
    assert [type(result) for result in results] == [QueueShutDown] * 3


async def test_drain_hands_out_ready_items_and_waits_until_they_are_done(queue: PriorityQueue[str], clock: FakeClock) -> None:
    queue.add("a")
    queue.add("b", priority=1)
    queue.add_after("c", 5)
    assert await queue.get() == "b"
    queue.add("b")
    drained = asyncio.ensure_future(queue.drain())
    await settle()
    queue.add("d")
    queue.done("b")
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    queue.done("a")
    await settle()
    assert not drained.done()
    queue.done("b")
    await drained
    with pytest.raises(QueueShutDown):
        await queue.get()
    assert clock.waiting == 0


async def test_shut_down_ends_a_drain_at_once(queue: PriorityQueue[str]) -> None:
    queue.add("a")
    drained = asyncio.ensure_future(queue.drain())
    await settle()
    queue.shut_down()
    await asyncio.wait_for(drained, 1)
    with pytest.raises(QueueShutDown):
        await queue.get()


async def test_a_queue_that_was_shut_down_drains_at_once(queue: PriorityQueue[str]) -> None:
    queue.add("a")
    queue.shut_down()
    await asyncio.wait_for(queue.drain(), 1)


async def test_done_without_get_is_refused(queue: PriorityQueue[str]) -> None:
    with pytest.raises(ValueError, match="without a get"):
        queue.done("a")


async def test_a_retry_waits_for_the_limiter_and_keeps_its_priority(queue: PriorityQueue[str], clock: FakeClock) -> None:
    """R203, R206, X12"""
    queue.add("a", priority=4)
    await queue.get()
    assert queue.add_rate_limited("a", priority=queue.priority_of("a")) == 0.005
    queue.done("a")
    assert queue.retries("a") == 1
    await clock.advance(0.006)
    assert await queue.get() == "a"
    assert queue.priority_of("a") == 4


async def test_levels_that_raising_left_empty_do_not_pile_up(queue: PriorityQueue[str]) -> None:
    for priority in range(10_000):
        queue.add("a", priority=priority)
    assert len(queue._levels) == 1
    assert len(queue._heap) < 100
    assert await take_all(queue) == ["a"]


async def test_many_workers_never_hold_one_item_twice() -> None:
    queue: PriorityQueue[int] = PriorityQueue(clock=FakeClock())
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
            queue.add(round_ % 7, priority=round_ % 3)
            if round_ % 3 == 0:
                await asyncio.sleep(0)
        await queue.drain()
    assert 7 <= handed_out <= 200
    assert queue.stats[:3] == (0, 0, 0)
