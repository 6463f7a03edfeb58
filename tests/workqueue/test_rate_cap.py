"""One limit for all queues of a process."""

import asyncio

import pytest

from kubeloop.timing import FakeClock
from kubeloop.workqueue import PriorityQueue, QueueShutDown, RateCap, WorkQueue

Capped = WorkQueue[str] | PriorityQueue[str]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def work(queue: Capped, done: list[str]) -> None:
    while True:
        try:
            item = await queue.get()
        except QueueShutDown:
            return
        done.append(item)
        queue.done(item)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def end(queues: list[Capped], workers: list[asyncio.Task[None]]) -> None:
    for queue in queues:
        queue.shut_down()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)


async def test_queues_that_share_a_cap_hand_out_its_rate_together_and_drop_nothing(clock: FakeClock) -> None:
    cap = RateCap(10, 5, clock)
    queues: list[Capped] = [WorkQueue(clock=clock, cap=cap), PriorityQueue(clock=clock, cap=cap)]
    done: list[str] = []
    for number in range(20):
        queues[number % 2].add(f"{number}")
    workers = [asyncio.ensure_future(work(queue, done)) for queue in queues for _ in range(3)]
    await settle()
    assert len(done) == 5
    await clock.advance(0.95)
    assert len(done) == 14
    await clock.advance(10)
    assert sorted(done, key=int) == [f"{number}" for number in range(20)]
    assert clock.waiting == 0
    await end(queues, workers)


async def test_queues_take_turns_at_the_cap(clock: FakeClock) -> None:
    cap = RateCap(1, 1, clock)
    queues: list[Capped] = [WorkQueue(clock=clock, cap=cap) for _ in range(2)]
    done: list[str] = []
    for number in range(10):
        queues[0].add(f"a{number}")
    queues[1].add("b")
    workers = [asyncio.ensure_future(work(queue, done)) for queue in queues]
    await clock.advance(3)
    assert done == ["a0", "a1", "b", "a2"]
    await end(queues, workers)


async def test_what_becomes_important_while_a_worker_waits_for_the_cap_is_taken_first(clock: FakeClock) -> None:
    cap = RateCap(1, 1, clock)
    queue: PriorityQueue[str] = PriorityQueue(clock=clock, cap=cap)
    done: list[str] = []
    workers = [asyncio.ensure_future(work(queue, done))]
    for item in "ab":
        queue.add(item)
    await settle()
    queue.add("urgent", priority=1)
    await clock.advance(2)
    assert done == ["a", "urgent", "b"]
    await end([queue], workers)


async def test_a_cancelled_worker_leaves_its_turn_and_its_item_to_the_next(clock: FakeClock) -> None:
    cap = RateCap(1, 1, clock)
    queue: WorkQueue[str] = WorkQueue(clock=clock, cap=cap)
    assert cap.try_pass()
    first = asyncio.ensure_future(queue.get())
    second = asyncio.ensure_future(queue.get())
    await settle()
    queue.add("a")
    await settle()
    first.cancel()
    await settle()
    assert not second.done(), "the worker that left passes nothing on but its place"
    await clock.advance(1)
    assert await second == "a"
    assert clock.waiting == 0
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_worker_cancelled_when_its_turn_has_just_come_leaves_it_to_the_next(clock: FakeClock) -> None:
    cap = RateCap(1, 1, clock)
    queue: WorkQueue[str] = WorkQueue(clock=clock, cap=cap)
    assert cap.try_pass()
    queue.add("a")
    queue.add("b")
    first = asyncio.ensure_future(queue.get())
    second = asyncio.ensure_future(queue.get())
    await settle()
    cap.give_back()  # The first one's turn comes, but it does not run yet.
    first.cancel()
    await settle()
    assert second.done()
    assert await second == "a"
    assert len(queue) == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_worker_that_finds_nothing_when_its_turn_comes_gives_it_back(clock: FakeClock) -> None:
    cap = RateCap(1, 1, clock)
    queue: WorkQueue[str] = WorkQueue(clock=clock, cap=cap)
    other: WorkQueue[str] = WorkQueue(clock=clock, cap=cap)
    assert cap.try_pass()
    queue.add("a")
    workers = [asyncio.ensure_future(queue.get()) for _ in range(2)]  # Two for one item.
    await settle()
    other.add("b")
    third = asyncio.ensure_future(other.get())
    await settle()
    await clock.advance(1)
    assert [worker.done() for worker in workers] == [True, False]
    await clock.advance(1)
    assert third.done()
    queue.shut_down()
    with pytest.raises(QueueShutDown):
        await workers[1]


async def test_a_priority_queue_that_shuts_down_tells_its_workers_at_once_though_the_cap_holds_them(clock: FakeClock) -> None:
    """R215"""
    cap = RateCap(0.001, 1, clock)
    assert cap.try_pass()
    queue: PriorityQueue[str] = PriorityQueue(clock=clock, cap=cap)
    queue.add("a")
    worker = asyncio.ensure_future(queue.get())
    await settle()
    queue.shut_down()
    with pytest.raises(QueueShutDown):
        await asyncio.wait_for(worker, 1)
    assert clock.waiting == 0


async def test_a_work_queue_that_shuts_down_still_keeps_to_the_cap(clock: FakeClock) -> None:
    cap = RateCap(1, 1, clock)
    queue: WorkQueue[str] = WorkQueue(clock=clock, cap=cap)
    done: list[str] = []
    for item in "abc":
        queue.add(item)
    worker = asyncio.ensure_future(work(queue, done))
    await settle()
    queue.shut_down()
    await clock.advance(1.5)
    assert done == ["a", "b"]
    await clock.advance(1)
    assert done == ["a", "b", "c"]
    await asyncio.wait_for(worker, 1)


def test_a_cap_that_lets_nothing_through_is_refused() -> None:
    with pytest.raises(ValueError, match="rate above 0"):
        RateCap(0)


async def test_a_cap_that_is_changed_holds_for_those_who_wait_already(clock: FakeClock) -> None:
    cap = RateCap(0.001, 1, clock)
    queue: WorkQueue[str] = WorkQueue(clock=clock, cap=cap)
    done: list[str] = []
    for item in "abcd":
        queue.add(item)
    workers = [asyncio.ensure_future(work(queue, done))]
    await settle()
    assert done == ["a"]
    cap.change(1, 1)
    await settle()
    assert done == ["a", "b"]
    await clock.advance(2)
    assert done == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="rate above 0"):
        cap.change(0, 1)
    await end([queue], workers)
