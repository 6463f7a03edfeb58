"""What queues tell about themselves, on a clock that stands still (behaviours H118, R214)."""

import pytest

from kubeloop.timing import FakeClock
from kubeloop.workqueue import PriorityQueue, QueueTimes, WorkQueue
from kubeloop.workqueue.protocol import BOUNDS, EXCEEDED, DurationHistogram, PriorityLabels


class Times:
    """Records every time that is reported."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.works: list[float] = []

    def waited(self, seconds: float) -> None:
        self.waits.append(seconds)

    def worked(self, seconds: float) -> None:
        self.works.append(seconds)


def depth(queue: WorkQueue[str] | PriorityQueue[str]) -> int:
    depths = queue.figures.depths
    return depths if isinstance(depths, int) else sum(depths.values())


@pytest.mark.parametrize("kind", [WorkQueue, PriorityQueue])
async def test_counts_and_times_are_exact(kind: type[WorkQueue[str]] | type[PriorityQueue[str]]) -> None:
    """H118"""
    clock, times = FakeClock(), Times()
    queue = kind(clock=clock, metrics=times)
    queue.add("a")
    assert (queue.figures.adds, depth(queue)) == (1, 1)
    await clock.advance(50e-6)

    assert await queue.get() == "a"
    assert times.waits == pytest.approx([50e-6])
    for _ in range(5):
        queue.add("a")
    assert (queue.figures.adds, depth(queue)) == (2, 1)
    await clock.advance(25e-6)
    queue.done("a")
    assert times.works == pytest.approx([25e-6])
    assert depth(queue) == 1

    assert await queue.get() == "a"
    assert times.waits == pytest.approx([50e-6, 25e-6])
    await clock.advance(1e-3)
    assert queue.figures[3:] == pytest.approx((1e-3, 1e-3))
    queue.done("a")
    assert times.works == pytest.approx([25e-6, 1e-3])
    assert queue.figures[3:] == (0, 0)
    assert depth(queue) == 0


@pytest.mark.parametrize("kind", [WorkQueue, PriorityQueue])
async def test_unfinished_work_is_that_of_all_workers_and_the_longest_began_first(
    kind: type[WorkQueue[str]] | type[PriorityQueue[str]],
) -> None:
    """H118"""
    clock = FakeClock()
    queue = kind(clock=clock, metrics=QueueTimes())
    for item in "ab":
        queue.add(item)
        await queue.get()
        await clock.advance(3)
    assert queue.figures[3:] == (9, 6)
    queue.done("a")
    assert queue.figures[3:] == (3, 3)


@pytest.mark.parametrize("kind", [WorkQueue, PriorityQueue])
async def test_metrics_set_no_timer_and_so_leave_none_after_shut_down(kind: type[WorkQueue[str]] | type[PriorityQueue[str]]) -> None:
    """H118"""
    clock = FakeClock()
    queue = kind(clock=clock, metrics=QueueTimes())
    queue.add("a")
    await queue.get()
    await clock.advance(10)
    assert clock.waiting == 0
    queue.shut_down()
    queue.done("a")
    assert clock.waiting == 0
    assert queue.figures[3:] == (0, 0)


async def test_of_a_delayed_item_the_time_after_its_delay_counts() -> None:
    """H118"""
    clock, times = FakeClock(), Times()
    queue: PriorityQueue[str] = PriorityQueue(clock=clock, metrics=times)
    queue.add_after("a", 10)
    await clock.advance(12)
    await queue.get()
    assert times.waits == pytest.approx([2])


async def test_raising_an_item_does_not_make_it_younger() -> None:
    clock, times = FakeClock(), Times()
    queue: PriorityQueue[str] = PriorityQueue(clock=clock, metrics=times)
    queue.add("a")
    await clock.advance(1)
    queue.add("a", priority=1)
    await clock.advance(1)
    await queue.get()
    assert times.waits == pytest.approx([2])


async def test_every_addition_with_a_delay_counts_as_a_retry() -> None:
    """H117, H118"""
    queue: WorkQueue[str] = WorkQueue(clock=FakeClock())
    queue.add("a")
    queue.add_after("b", 0)
    queue.add_after("c", 1)
    queue.add_rate_limited("d")
    assert queue.figures.delayed_adds == 3
    priorities: PriorityQueue[str] = PriorityQueue(clock=FakeClock())
    priorities.add_after("b", 0)
    priorities.add_after("c", 1)
    priorities.add_rate_limited("d")
    assert priorities.figures.delayed_adds == 2


async def test_depth_by_priority_counts_ready_items_and_follows_an_item_that_is_raised() -> None:
    """R214"""
    queue: PriorityQueue[str] = PriorityQueue(clock=FakeClock())
    queue.add_after("a", 3600)
    queue.add("b")
    queue.add("c")
    labels = PriorityLabels()
    assert labels.of(_depths(queue)) == {"0": 2}
    queue.add("a", priority=1)
    queue.add("b", priority=1)
    assert labels.of(_depths(queue)) == {"0": 1, "1": 2}
    for _ in range(3):
        queue.done(await queue.get())
    assert labels.of(_depths(queue)) == {"0": 0, "1": 0}


def _depths(queue: PriorityQueue[str]) -> dict[int, int]:
    found = queue.figures.depths
    assert not isinstance(found, int)
    return dict(found)


def test_after_25_priorities_all_others_are_one_series() -> None:
    labels = PriorityLabels()
    assert labels.of(dict.fromkeys(range(25), 1)) == {str(number): 1 for number in range(25)}
    assert labels.of({0: 2, 100: 3, 101: 4}) == {"0": 2} | {str(number): 0 for number in range(1, 25)} | {EXCEEDED: 7}
    assert labels.of({})[EXCEEDED] == 0


def test_a_value_is_counted_in_the_first_bucket_that_is_not_below_it() -> None:
    histogram = DurationHistogram()
    assert BOUNDS[0] == 1e-08
    assert BOUNDS[-1] == 1000
    for value in (0, 1e-8, 2e-8, 1000, 1001):
        histogram.observe(value)
    buckets = dict(histogram.buckets())
    assert [buckets["1e-08"], buckets["1e-07"], buckets["1000.0"], buckets["+Inf"]] == [2, 3, 4, 5]
    assert histogram.total == pytest.approx(2001.00000003)
