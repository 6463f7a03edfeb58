"""Delays and retries of the work queue (behaviours H109-H112, H117)."""

import math

import pytest

from kubeloop.timing import FakeClock
from kubeloop.workqueue import PriorityQueue, WorkQueue
from kubeloop.workqueue.base import Delays


def make() -> tuple[FakeClock, WorkQueue[str]]:
    clock = FakeClock()
    return clock, WorkQueue(clock=clock)


async def test_add_after_delivers_not_before_its_time() -> None:
    """H109"""
    clock, queue = make()
    queue.add_after("a", 0.050)
    await clock.advance(0.049)
    assert len(queue) == 0
    await clock.advance(0.002)
    assert len(queue) == 1


async def test_a_delay_of_zero_or_less_delivers_at_once() -> None:
    """H109"""
    _, queue = make()
    queue.add_after("a", 0)
    queue.add_after("b", -1)
    assert len(queue) == 2


async def test_of_two_delays_for_one_item_the_earlier_wins_whichever_came_first_and_it_is_delivered_once() -> None:
    """H110"""
    for first, second in ((0.050, 0.070), (0.050, 0.030)):
        clock, queue = make()
        queue.add_after("a", first)
        queue.add_after("a", second)
        await clock.advance(min(first, second) + 0.001)
        assert await queue.get() == "a"
        queue.done("a")
        await clock.advance(1)
        assert len(queue) == 0


async def test_items_come_out_in_order_of_readiness_also_when_added_in_the_opposite_order() -> None:
    """H111"""
    clock, queue = make()
    for number in range(20, 0, -1):
        queue.add_after(f"{number:02d}", number)
    await clock.advance(30)
    assert [await queue.get() for _ in range(20)] == [f"{number:02d}" for number in range(1, 21)]


async def test_one_timer_serves_all_delays() -> None:
    clock, queue = make()
    for number in range(1000):
        queue.add_after(f"{number}", 1 + number % 7)
    assert clock.waiting == 1


async def test_entries_that_an_earlier_time_made_void_do_not_pile_up() -> None:
    clock = FakeClock()
    released: list[str] = []
    delays: Delays[str] = Delays(clock, released.append)
    for number in range(10_000, 0, -1):
        delays.put("a", number)
    assert len(delays) == 1
    assert len(delays._heap) < 100
    await clock.advance(10_000)
    assert released == ["a"]


async def test_add_after_shut_down_is_ignored_and_shut_down_may_be_called_twice() -> None:
    """H112, X9"""
    clock, queue = make()
    queue.add_after("early", 1)
    queue.shut_down()
    queue.add_after("late", 1)
    queue.shut_down()
    await clock.advance(5)
    assert len(queue) == 0
    assert clock.waiting == 0


async def test_add_rate_limited_delays_by_the_limiter_and_counts_a_retry() -> None:
    """H117"""
    clock, queue = make()
    assert [queue.add_rate_limited("a"), queue.add_rate_limited("a")] == [0.005, 0.01]
    assert queue.retries("a") == 2
    assert queue.stats.retries == 2
    await clock.advance(0.0051)
    assert await queue.get() == "a"


async def test_forget_does_not_remove_an_item_that_waits() -> None:
    """H117"""
    _, queue = make()
    queue.add_rate_limited("a")
    queue.add("a")
    queue.forget("a")
    assert queue.retries("a") == 0
    assert len(queue) == 1
    assert queue.stats.delayed == 1


async def test_a_discarded_item_is_not_released_and_may_be_put_again() -> None:
    clock = FakeClock()
    released: list[str] = []
    delays: Delays[str] = Delays(clock, released.append)
    delays.put("a", 1)
    delays.put("b", 2)
    delays.discard("a")
    delays.put("a", 3)
    await clock.advance(2.5)
    assert released == ["b"]
    await clock.advance(1)
    assert released == ["b", "a"]


@pytest.mark.parametrize("kind", [WorkQueue, PriorityQueue])
async def test_a_delay_that_is_not_a_number_is_refused_by_name_and_others_are_not_disturbed(
    kind: type[WorkQueue[str]] | type[PriorityQueue[str]],
) -> None:
    clock = FakeClock()
    queue = kind(clock=clock)
    queue.add_after("a", 1)
    with pytest.raises(ValueError, match="the delay of 'b' must be a number"):
        queue.add_after("b", math.nan)
    queue.add_after("c", math.inf)
    await clock.advance(1)
    assert [await queue.get(), queue.stats.delayed] == ["a", 1]
