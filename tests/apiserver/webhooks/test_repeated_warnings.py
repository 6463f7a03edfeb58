"""A log is no place that a client can fill at will."""

from __future__ import annotations

import logging

import pytest

from kubeloop.apiserver.webhooks.dispatcher import LONGEST, MOST, PERIOD, RepeatedWarnings
from kubeloop.timing import FakeClock

_LOG = logging.getLogger("tests.repeated")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def warnings(clock: FakeClock, caplog: pytest.LogCaptureFixture) -> RepeatedWarnings:
    caplog.set_level(logging.WARNING, logger=_LOG.name)
    return RepeatedWarnings(_LOG, clock)


async def test_a_warning_is_logged_once_in_a_while_with_its_number(
    warnings: RepeatedWarnings, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(1000):
        warnings.warn("it failed")
    warnings.warn("another thing failed")
    assert caplog.messages == ["it failed", "another thing failed"]
    await clock.advance(PERIOD)
    warnings.warn("it failed")
    warnings.warn("another thing failed")
    assert caplog.messages[2:] == ["it failed (and 999 times in the 60 s before)", "another thing failed"]


def test_a_million_different_warnings_are_not_remembered(warnings: RepeatedWarnings, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(MOST + 1):
        warnings.warn(f"{number} failed")
    warnings.warn("1 failed")
    assert len(caplog.messages) == MOST + 1
    warnings.warn("0 failed")
    assert len(caplog.messages) == MOST + 2


def test_a_long_warning_is_cut(warnings: RepeatedWarnings, caplog: pytest.LogCaptureFixture) -> None:
    warnings.warn("x" * 1_000_000)
    assert [len(one) for one in caplog.messages] == [LONGEST]
