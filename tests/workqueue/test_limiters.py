"""How long failing items wait (behaviours H113-H116)."""

from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.controller import Controller
from kubeloop.timing import FakeClock, TokenBucket
from kubeloop.workqueue import (
    BucketLimiter,
    ExponentialLimiter,
    FastSlowLimiter,
    Limiter,
    MaxOfLimiter,
    MaxWaitLimiter,
    PriorityQueue,
    WorkQueue,
    default_limiter,
)


class Named(Controller[ConfigMap]):
    async def reconcile(self, config: ConfigMap) -> None: ...


def test_the_per_item_limiter_doubles_counts_and_forgets_and_leaves_other_items_alone() -> None:
    """H113"""
    limiter: ExponentialLimiter[str] = ExponentialLimiter(0.001, 1)
    assert [limiter.delay("a") for _ in range(5)] == [0.001, 0.002, 0.004, 0.008, 0.016]
    assert limiter.retries("a") == 5
    assert [limiter.delay("b"), limiter.retries("b")] == [0.001, 1]
    limiter.forget("a")
    assert [limiter.retries("a"), limiter.delay("a")] == [0, 0.001]
    assert limiter.retries("b") == 1


def test_the_cap_of_the_per_item_limiter_holds_without_overflow_after_thousands_of_failures() -> None:
    """H113"""
    limiter: ExponentialLimiter[str] = ExponentialLimiter(0.001, 1000)
    delays = [limiter.delay("a") for _ in range(3000)]
    assert max(delays) == 1000
    assert delays == sorted(delays)
    assert limiter.retries("a") == 3000


@pytest.mark.parametrize(
    "limiter",
    [
        pytest.param(ExponentialLimiter(), id="the limiter per item"),
        pytest.param(PriorityQueue[str]()._limiter, id="the limiter of a priority queue"),
        pytest.param(Named().retry_limiter(FakeClock()), id="the limiter of a controller"),
    ],
)
def test_by_default_an_item_waits_5_ms_doubling_to_1000_s_and_never_longer_and_no_item_waits_for_another(limiter: Limiter[Any]) -> None:
    """H113, X12"""
    doubled = [0.005 * 2**number for number in range(18)]
    assert doubled[-1] < 1000 < 2 * doubled[-1]
    assert [limiter.delay("a") for _ in range(1100)] == pytest.approx([*doubled, *[1000] * 1082])
    assert {limiter.delay(f"item {number}") for number in range(200)} == {0.005}


def test_max_of_gives_the_longest_delay_and_the_highest_count() -> None:
    """H115"""
    limiter: MaxOfLimiter[str] = MaxOfLimiter(ExponentialLimiter(0.005, 3), ExponentialLimiter(0.001, 100))
    delays = [limiter.delay("a") for _ in range(20)]
    assert delays[0] == 0.005
    assert delays[-1] == 100
    assert limiter.retries("a") == 20


def test_the_default_limiter_is_5_ms_to_1000_s_per_item_and_10_per_second_with_a_burst_of_100_over_all() -> None:
    """H116, X11"""
    limiter = default_limiter(FakeClock())
    firsts = [limiter.delay(f"{number}") for number in range(102)]
    assert firsts[:100] == [0.005] * 100
    assert firsts[100:] == [0.1, 0.2]
    one = default_limiter(FakeClock())
    assert [one.delay("a") for _ in range(4)] == [0.005, 0.01, 0.02, 0.04]
    assert max(one.delay("a") for _ in range(30)) == 1000


def test_the_fast_slow_limiter_is_fast_for_the_first_attempts_and_slow_then() -> None:
    """H114"""
    limiter: FastSlowLimiter[str] = FastSlowLimiter(0.005, 10, 3)
    assert [limiter.delay("a") for _ in range(5)] == [0.005, 0.005, 0.005, 10, 10]
    assert limiter.retries("a") == 5
    assert [limiter.delay("b"), limiter.retries("b")] == [0.005, 1]
    limiter.forget("a")
    assert [limiter.retries("a"), limiter.delay("a")] == [0, 0.005]


def test_the_longest_of_a_fast_slow_and_an_exponential_limiter_is_taken() -> None:
    """H115"""
    limiter: MaxOfLimiter[str] = MaxOfLimiter(FastSlowLimiter(0.005, 3, 3), ExponentialLimiter(0.001, 100))
    assert [limiter.delay("a") for _ in range(5)] == [0.005, 0.005, 0.005, 3, 3]
    assert limiter.retries("a") == 5
    limiter.forget("a")
    assert limiter.retries("a") == 0
    assert limiter.delay("a") == 0.005


def test_a_longest_wait_caps_any_limiter_and_leaves_its_counts() -> None:
    """H115"""
    limiter: MaxWaitLimiter[str] = MaxWaitLimiter(FastSlowLimiter(0.005, 10, 3), 1)
    assert [limiter.delay("a") for _ in range(5)] == [0.005, 0.005, 0.005, 1, 1]
    assert limiter.retries("a") == 5
    limiter.forget("a")
    assert limiter.retries("a") == 0


def test_a_bucket_is_shared_by_all_items_and_counts_none() -> None:
    """H116, X11"""
    limiter: BucketLimiter[str] = BucketLimiter(TokenBucket(10, 2, FakeClock()))
    assert [limiter.delay(item) for item in "abcd"] == pytest.approx([0, 0, 0.1, 0.2])
    assert limiter.retries("c") == 0
    limiter.forget("c")


class _ByName:
    """Production waits longer."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def delay(self, item: str) -> float:
        self.counts[item] = self.counts.get(item, 0) + 1
        return 60 if item.startswith("production/") else 1

    def forget(self, item: str) -> None:
        self.counts.pop(item, None)

    def retries(self, item: str) -> int:
        return self.counts.get(item, 0)


async def test_a_limiter_of_ones_own_decides() -> None:
    clock, limiter = FakeClock(), _ByName()
    queue: WorkQueue[str] = WorkQueue(limiter, clock)
    assert [queue.add_rate_limited(item) for item in ("test/a", "production/b")] == [1, 60]
    await clock.advance(2)
    assert [await queue.get(), len(queue)] == ["test/a", 0]
    assert queue.retries("test/a") == 1
    queue.forget("test/a")
    assert queue.retries("test/a") == 0


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: ExponentialLimiter(0, 1), id="an initial delay of nothing"),
        pytest.param(lambda: ExponentialLimiter(2, 1), id="a cap below the initial delay"),
        pytest.param(lambda: FastSlowLimiter(-1, 1, 1), id="a negative fast delay"),
        pytest.param(lambda: FastSlowLimiter(1, 1, -1), id="a negative number of attempts"),
        pytest.param(lambda: MaxWaitLimiter(ExponentialLimiter(), -1), id="a negative longest wait"),
        pytest.param(MaxOfLimiter, id="the longest of no limiter"),
    ],
)
def test_a_limiter_that_makes_no_sense_is_refused(make: type[Limiter[str]]) -> None:
    with pytest.raises(ValueError, match=r"limiter|longest wait"):
        make()
