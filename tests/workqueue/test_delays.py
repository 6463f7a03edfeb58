"""Delays and retries of the work queue (behaviours H109-H113, H116, H117)."""

from kubeloop.timing import FakeClock
from kubeloop.workqueue import ExponentialLimiter, MaxOfLimiter, WorkQueue, default_limiter
from kubeloop.workqueue.delays import Delays


def make() -> tuple[FakeClock, WorkQueue[str]]:
    clock = FakeClock()
    return clock, WorkQueue(clock=clock)


async def test_add_after_delivers_not_before_its_time() -> None:
    clock, queue = make()
    queue.add_after("a", 0.050)
    await clock.advance(0.049)
    assert len(queue) == 0
    await clock.advance(0.002)
    assert len(queue) == 1


async def test_a_delay_of_zero_or_less_delivers_at_once() -> None:
    _, queue = make()
    queue.add_after("a", 0)
    queue.add_after("b", -1)
    assert len(queue) == 2


async def test_of_two_delays_for_one_item_the_earlier_wins_whichever_came_first_and_it_is_delivered_once() -> None:
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
    clock, queue = make()
    queue.add_after("early", 1)
    queue.shut_down()
    queue.add_after("late", 1)
    queue.shut_down()
    await clock.advance(5)
    assert len(queue) == 0
    assert clock.waiting == 0


def test_the_per_item_limiter_doubles_counts_and_forgets_and_leaves_other_items_alone() -> None:
    limiter: ExponentialLimiter[str] = ExponentialLimiter(0.001, 1)
    assert [limiter.delay("a") for _ in range(5)] == [0.001, 0.002, 0.004, 0.008, 0.016]
    assert limiter.retries("a") == 5
    assert [limiter.delay("b"), limiter.retries("b")] == [0.001, 1]
    limiter.forget("a")
    assert [limiter.retries("a"), limiter.delay("a")] == [0, 0.001]
    assert limiter.retries("b") == 1


def test_the_cap_of_the_per_item_limiter_holds_without_overflow_after_thousands_of_failures() -> None:
    limiter: ExponentialLimiter[str] = ExponentialLimiter(0.001, 1000)
    delays = [limiter.delay("a") for _ in range(3000)]
    assert max(delays) == 1000
    assert delays == sorted(delays)
    assert limiter.retries("a") == 3000


def test_max_of_gives_the_longest_delay_and_the_highest_count() -> None:
    limiter: MaxOfLimiter[str] = MaxOfLimiter(ExponentialLimiter(0.005, 3), ExponentialLimiter(0.001, 100))
    delays = [limiter.delay("a") for _ in range(20)]
    assert delays[0] == 0.005
    assert delays[-1] == 100
    assert limiter.retries("a") == 20


def test_the_default_limiter_is_5_ms_to_1000_s_per_item_and_10_per_second_with_a_burst_of_100_over_all() -> None:
    limiter = default_limiter(FakeClock())
    firsts = [limiter.delay(f"{number}") for number in range(102)]
    assert firsts[:100] == [0.005] * 100
    assert firsts[100:] == [0.1, 0.2]
    one = default_limiter(FakeClock())
    assert [one.delay("a") for _ in range(4)] == [0.005, 0.01, 0.02, 0.04]
    assert max(one.delay("a") for _ in range(30)) == 1000


async def test_add_rate_limited_delays_by_the_limiter_and_counts_a_retry() -> None:
    clock, queue = make()
    assert [queue.add_rate_limited("a"), queue.add_rate_limited("a")] == [0.005, 0.01]
    assert queue.retries("a") == 2
    assert queue.stats.retries == 2
    await clock.advance(0.0051)
    assert await queue.get() == "a"


async def test_forget_does_not_remove_an_item_that_waits() -> None:
    _, queue = make()
    queue.add_rate_limited("a")
    queue.add("a")
    queue.forget("a")
    assert queue.retries("a") == 0
    assert len(queue) == 1
    assert queue.stats.delayed == 1
