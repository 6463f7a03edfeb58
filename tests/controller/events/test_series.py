"""Series of events.k8s.io/v1 (behaviours J138, J139), with client-go's figures and without a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.controller.events.correlation import CorrelationResult
from kubeloop.controller.events.occurrence import EventSubject, Occurrence
from kubeloop.controller.events.sinks import SeriesCorrelator
from kubeloop.timing import FakeClock

POD = EventSubject("v1", "Pod", "shop", "web-0", "u", "7")
NODE = EventSubject("v1", "Node", "", "n1", "un")
START = datetime(2026, 1, 1, tzinfo=UTC)
BOUND = Occurrence(POD, "Normal", "Scheduled", "assigned", START, "Binding", NODE)
MINUTE = 60.0


def test_j138_the_first_is_created_the_second_starts_a_series_with_count_2_and_is_patched_once() -> None:
    correlator = SeriesCorrelator(FakeClock())
    (first,) = correlator.observe(BOUND).writes
    assert (first.count, first.exists) == (1, False)
    later = BOUND._replace(time=START + timedelta(seconds=5))
    (second,) = correlator.observe(later).writes
    assert (second.count, second.exists, second.name, second.first, second.last) == (2, True, first.name, START, later.time)
    assert [correlator.observe(BOUND) for _ in range(3)] == [CorrelationResult()] * 3


@pytest.mark.parametrize(
    ("other", "isomorphic"),
    [
        pytest.param(BOUND._replace(message="another text"), True, id="J138: the message does not make another event"),
        pytest.param(BOUND._replace(subject=POD._replace(resource_version="8")), True, id="J138: the version of the object does not"),
        pytest.param(
            BOUND._replace(related=NODE._replace(resource_version="8")), True, id="J138: the version of the related object does not"
        ),
        pytest.param(BOUND._replace(type="Warning"), False, id="J138: another type does"),
        pytest.param(BOUND._replace(reason="Other"), False, id="J138: another reason does"),
        pytest.param(BOUND._replace(action="Other"), False, id="J138: another action does"),
        pytest.param(BOUND._replace(related=None), False, id="J138: another related object does"),
        pytest.param(BOUND._replace(subject=POD._replace(uid="other")), False, id="J138: another object does"),
        pytest.param(BOUND._replace(subject=POD._replace(field_path="spec")), False, id="J138: another part of the object does"),
    ],
)
def test_isomorphic(other: Occurrence, isomorphic: bool) -> None:
    correlator = SeriesCorrelator(FakeClock())
    correlator.observe(BOUND)
    (write,) = correlator.observe(other).writes
    assert write.exists is isomorphic


async def test_j138_a_series_that_goes_on_is_written_every_30_minutes() -> None:
    clock = FakeClock()
    correlator = SeriesCorrelator(clock)
    counts = []
    for _ in range(100):
        correlator.observe(BOUND)
        await clock.advance(MINUTE)
        counts += [write.count for write in correlator.due()]
    assert counts == [31, 61, 91]


async def test_j138_a_series_is_over_after_6_idle_minutes_and_its_last_count_is_written() -> None:
    clock = FakeClock()
    correlator = SeriesCorrelator(clock)
    for _ in range(4):
        correlator.observe(BOUND)
    assert correlator.next_due() == 6 * MINUTE
    await clock.advance(6 * MINUTE - 1)
    assert correlator.due() == []
    await clock.advance(1)
    assert [write.count for write in correlator.due()] == [4]
    assert correlator.next_due() is None
    (again,) = correlator.observe(BOUND).writes
    assert (again.count, again.exists) == (1, False)


async def test_j138_what_the_server_knows_already_is_not_written_again_at_the_end_of_a_series() -> None:
    clock = FakeClock()
    correlator = SeriesCorrelator(clock)
    correlator.observe(BOUND)
    correlator.observe(BOUND)
    await clock.advance(6 * MINUTE)
    assert correlator.due() == []


async def test_j138_a_single_event_is_forgotten_after_6_minutes() -> None:
    clock = FakeClock()
    correlator = SeriesCorrelator(clock)
    correlator.observe(BOUND)
    await clock.advance(6 * MINUTE)
    (again,) = correlator.observe(BOUND).writes
    assert not again.exists


def test_at_the_end_what_was_only_counted_is_written() -> None:
    correlator = SeriesCorrelator(FakeClock())
    for _ in range(5):
        correlator.observe(BOUND)
    correlator.observe(BOUND._replace(reason="Once"))
    assert [write.count for write in correlator.rest()] == [5]


def test_an_event_that_must_be_forgotten_for_a_new_one_is_written_first() -> None:
    correlator = SeriesCorrelator(FakeClock(), capacity=1)
    for _ in range(3):
        correlator.observe(BOUND)
    last, new = correlator.observe(BOUND._replace(reason="Other")).writes
    assert (last.count, last.exists, new.count, new.exists) == (3, True, 1, False)
    assert correlator.rest() == []


def test_j137_the_event_of_a_cluster_scoped_object_lives_in_default() -> None:
    (write,) = SeriesCorrelator(FakeClock()).observe(BOUND._replace(subject=NODE)).writes
    assert write.namespace == "default"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0, 59, 361, 1000])), max_size=40), st.integers(1, 3))
def test_whatever_happens_each_occurrence_is_in_the_count_of_some_event_at_the_end(steps: list[tuple[str, int]], capacity: int) -> None:
    clock = FakeClock()
    correlator = SeriesCorrelator(clock, capacity=capacity)
    server: dict[str, int] = {}
    for reason, seconds in steps:
        clock._now += seconds
        for write in (*correlator.due(), *correlator.observe(BOUND._replace(reason=reason)).writes):
            assert write.exists is (write.name in server)
            server[write.name] = write.count
        assert len(correlator._series) <= capacity
    server.update({write.name: write.count for write in correlator.rest()})
    assert sum(server.values()) == len(steps)
