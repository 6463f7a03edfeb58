"""Back-off: growth, cap, jitter, reset."""

import random

import pytest

from kubeloop.timing import Backoff, FakeClock


def steady(**settings: float) -> Backoff:
    return Backoff(**{"initial": 1.0, "cap": 8.0, "jitter": 0.0, **settings}, clock=FakeClock())  # type: ignore[arg-type]  # a table of floats


def test_delays_double_up_to_the_cap() -> None:
    backoff = steady()
    assert [backoff.next() for _ in range(6)] == [1, 2, 4, 8, 8, 8]


def test_the_cap_holds_after_a_thousand_failures() -> None:
    backoff = steady()
    assert [backoff.next() for _ in range(2000)][-1] == 8


def test_an_initial_delay_above_the_cap_is_capped() -> None:
    assert steady(initial=20.0).next() == 8


def test_reset_starts_over() -> None:
    backoff = steady()
    backoff.next(), backoff.next()
    backoff.reset()
    assert backoff.next() == 1


async def test_a_quiet_time_longer_than_reset_after_starts_over() -> None:
    clock = FakeClock()
    backoff = Backoff(1, jitter=0, reset_after=120, clock=clock)
    assert [backoff.next(), backoff.next()] == [1, 2]
    await clock.advance(120)
    assert backoff.next() == 4
    await clock.advance(120.1)
    assert backoff.next() == 1


def test_jitter_stretches_by_at_most_its_part_and_never_shortens() -> None:
    backoff = Backoff(10, cap=10, jitter=0.5, clock=FakeClock(), rng=random.Random(7))
    delays = [backoff.next() for _ in range(500)]
    assert 10 <= min(delays) < 10.5
    assert 14.5 < max(delays) <= 15


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"initial": -1.0}, id="a negative delay is refused"),
        pytest.param({"factor": 0.5}, id="a factor that would shorten delays is refused"),
        pytest.param({"jitter": -0.1}, id="a negative jitter is refused"),
    ],
)
def test_settings(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="back-off wants"):
        steady(**wrong)
