"""Token bucket: burst, rate, order, cancellation."""

import asyncio

import pytest

from kubeloop.timing import FakeClock, TokenBucket


def test_the_burst_passes_at_once_and_then_the_rate_holds() -> None:
    bucket = TokenBucket(10, 3, FakeClock())
    assert [bucket.reserve() for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])


async def test_it_fills_up_to_the_burst_and_no_further() -> None:
    clock = FakeClock()
    bucket = TokenBucket(10, 2, clock)
    assert [bucket.try_take() for _ in range(3)] == [True, True, False]
    await clock.advance(60)
    assert [bucket.try_take() for _ in range(3)] == [True, True, False]


async def test_waiters_are_served_in_the_order_in_which_they_came() -> None:
    clock = FakeClock()
    bucket = TokenBucket(1, 1, clock)
    served: list[tuple[int, float]] = []

    async def ask(number: int) -> None:
        await bucket.take()
        served.append((number, clock.now() - start))

    start = clock.now()
    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(ask(number))
        await clock.advance(3)
    assert served == [(0, 0), (1, 1), (2, 2), (3, 3)]


async def test_a_cancelled_wait_gives_its_token_back() -> None:
    clock = FakeClock()
    bucket = TokenBucket(1, 1, clock)
    assert bucket.try_take()
    waiter = asyncio.ensure_future(bucket.take())
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert bucket.reserve() == 1


@pytest.mark.parametrize(
    ("rate", "burst"),
    [
        pytest.param(0, 1, id="a rate of zero is refused"),
        pytest.param(1, 0, id="a burst of zero is refused"),
    ],
)
def test_settings(rate: float, burst: int) -> None:
    with pytest.raises(ValueError, match="a bucket needs"):
        TokenBucket(rate, burst)
