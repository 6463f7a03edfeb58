"""Whatever is sent, the server answers it, in time and within its memory, and serves others meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.effort import effort
from tests.fuzz.requests import Sent, requests
from tests.fuzz.server import ALLOWED, Fuzzed

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(240)]

#: Of an example. 2,500 requests are sent, 10,000 in the long form; ``make fuzz`` sends more, and others in each run.
REQUESTS = 25


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Fuzzed]:
    with Fuzzed() as server:
        yield server


@settings(max_examples=effort(short=60, long=400), suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(requests(), min_size=REQUESTS, max_size=REQUESTS))
def test_each_request_is_answered_as_something_that_was_expected(fuzzed: Fuzzed, sent: list[Sent]) -> None:
    assert [finding for finding in map(fuzzed.send, sent) if finding] == []


def test_memory_and_other_clients_did_not_suffer(fuzzed: Fuzzed) -> None:
    assert sum(fuzzed.statuses.values()) > 1000
    assert fuzzed.grown <= ALLOWED, f"{fuzzed.grown >> 20} MiB more at the peak"
    assert fuzzed.served
    assert not [finding for finding in fuzzed.wrong if "another client" in finding]
    assert "Traceback" not in fuzzed.log, fuzzed.log[-3000:]
