"""Which events are combined, counted and dropped (behaviours J131-J133), with client-go's figures and without a server."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.controller.events.correlation import CoreCorrelator, CorrelationResult, EventLimits, EventWrite, LruDict
from kubeloop.controller.events.occurrence import EventSubject, Occurrence
from kubeloop.timing import FakeClock

POD = EventSubject("v1", "Pod", "shop", "web-0", "u", "7")
PREFIX = "(combined from similar events): "


def happened(message: str = "m", reason: str = "R", kind: str = "Normal", subject: EventSubject = POD) -> Occurrence:
    return Occurrence(subject, kind, reason, message, datetime(2026, 1, 1, tzinfo=UTC))


async def correlate(occurrences: Sequence[Occurrence], interval: float, limits: EventLimits | None = None) -> CorrelationResult:
    """What becomes of the last of them, ``interval`` seconds apart."""
    clock = FakeClock()
    correlator = CoreCorrelator(limits or EventLimits(), clock)
    verdict = CorrelationResult()
    for occurrence in occurrences:
        verdict = correlator.observe(occurrence)
        await clock.advance(interval)
    return verdict


SAME = happened("me again", "Duplicate")
OTHER = happened("snowflake", "Unique")
NEAR = POD._replace(field_path="spec.containers{one}")


def similar(number: int, subject: EventSubject = POD) -> list[Occurrence]:
    return [happened(f"similar {each}", "Similar", subject=subject) for each in range(number)]


# The scenarios and figures of TestEventCorrelator.
@pytest.mark.parametrize(
    ("occurrences", "interval", "message", "count"),
    [
        pytest.param([OTHER], 5, "snowflake", 1, id="J131: an event that is new is created"),
        pytest.param([SAME] * 2, 5, "me again", 2, id="J131: the same event again is counted"),
        pytest.param([SAME] * 11, 30, "me again", 11, id="J132: the same event is counted and not combined, however often"),
        pytest.param([*similar(9)], 5, "similar 8", 1, id="J132: nine messages of one reason are nine events"),
        pytest.param([*similar(10)], 5, f"{PREFIX}similar 9", 1, id="J132: the tenth message of one reason is combined"),
        pytest.param([*similar(11)], 5, f"{PREFIX}similar 10", 2, id="J132: the eleventh is counted by the combined event"),
        pytest.param([*similar(10)], 601, "similar 9", 1, id="J132: messages more than 10 min apart are not combined"),
        pytest.param(
            [*similar(9), similar(10)[9]._replace(reason="Other")],
            5,
            "similar 9",
            1,
            id="J132: messages of different reasons are not similar",
        ),
        pytest.param(
            [*similar(9), *similar(1, POD._replace(name="web-1", uid="u1"))], 5, "similar 0", 1, id="J132: other objects are not similar"
        ),
        pytest.param(
            [SAME._replace(subject=NEAR), SAME._replace(subject=POD._replace(field_path="spec.containers{two}"))],
            5,
            "me again",
            1,
            id="J131: the same event about another part of the object is another event",
        ),
        pytest.param(
            [SAME, SAME._replace(subject=POD._replace(resource_version="8"))], 5, "me again", 2, id="J131: the version does not count"
        ),
        pytest.param(
            [SAME, SAME._replace(subject=POD._replace(uid="other"))], 5, "me again", 1, id="J131: a recreated object is another one"
        ),
        pytest.param([SAME] * 26, 1, None, 0, id="J133: the 26th event about an object within 5 min is spam"),
        pytest.param(
            [happened(f"{each}", f"R{each}") for each in range(26)],
            1,
            None,
            0,
            id="J133: different events about one object are spam together",
        ),
        pytest.param(
            [*[happened(f"{each}", f"R{each}") for each in range(25)], SAME._replace(type="Warning")],
            1,
            "me again",
            1,
            id="J133: warnings are not spam because of normal events",
        ),
        pytest.param(
            [happened(subject=POD._replace(uid=str(each))) for each in range(30)],
            1,
            "m",
            1,
            id="J133: events about different objects are no spam",
        ),
    ],
)
async def test_what_becomes_of_an_event(occurrences: list[Occurrence], interval: float, message: str | None, count: int) -> None:
    verdict = await correlate(occurrences, interval)
    if message is None:
        assert verdict == CorrelationResult(spam=True)
        return
    (write,) = verdict.writes
    assert (write.occurrence.message, write.count, write.exists) == (message, count, count > 1)


async def test_j133_after_a_burst_of_25_one_event_passes_in_300_seconds_and_shows_what_was_dropped_in_its_count() -> None:
    clock = FakeClock()
    correlator = CoreCorrelator(EventLimits(), clock)
    assert [correlator.observe(SAME).spam for _ in range(30)] == [False] * 25 + [True] * 5
    await clock.advance(299)
    assert correlator.observe(SAME).spam
    await clock.advance(1)
    (write,) = correlator.observe(SAME).writes
    assert write.count == 32
    assert correlator.observe(SAME).spam


async def test_j133_the_key_of_the_spam_filter_can_be_replaced() -> None:
    by_reason = EventLimits(spam_key=lambda occurrence: occurrence.reason)
    assert (await correlate([SAME] * 26, 0, by_reason)).spam
    assert not (await correlate([*[SAME] * 25, OTHER], 0, by_reason)).spam


async def test_j132_the_similarity_and_the_message_of_a_combined_event_can_be_replaced() -> None:
    limits = EventLimits(
        similar=2, similar_key=lambda occurrence: occurrence.type, message=lambda occurrence: f"many: {occurrence.message}"
    )
    (write,) = (await correlate([happened("a", "A"), happened("b", "B")], 0, limits)).writes
    assert write.occurrence.message == "many: b"


async def test_a_combined_message_is_cut_to_what_a_server_takes() -> None:
    (write,) = (await correlate([happened(f"{each}{'x' * 1023}") for each in range(10)], 0)).writes
    assert len(write.occurrence.message) == 1024


async def test_the_first_event_keeps_its_name_and_time_and_the_count_rises() -> None:
    names = iter(["first", "second"])
    correlator = CoreCorrelator(EventLimits(), FakeClock(), lambda _: next(names))
    later = SAME._replace(time=datetime(2026, 1, 2, tzinfo=UTC))
    (one,), (two,) = correlator.observe(SAME).writes, correlator.observe(later).writes
    assert one == EventWrite("shop", "first", SAME, 1, SAME.time, SAME.time, exists=False)
    assert two == EventWrite("shop", "first", later, 2, SAME.time, later.time, exists=True)


@pytest.mark.parametrize(("namespace", "expected"), [("shop", "shop"), ("", "default")])
async def test_j137_an_event_lives_beside_its_object_and_in_default_for_a_cluster_scoped_one(namespace: str, expected: str) -> None:
    (write,) = (await correlate([happened(subject=POD._replace(namespace=namespace))], 0)).writes
    assert write.namespace == expected


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        pytest.param(lambda: EventLimits(burst=0), "burst", id="a burst of nothing"),
        pytest.param(lambda: EventLimits(refill=0), "refill", id="a refill in no time"),
        pytest.param(lambda: EventLimits(similar=0), "similar", id="no similar ones"),
        pytest.param(lambda: EventLimits(interval=-1), "interval", id="an interval in the past"),
        pytest.param(lambda: EventLimits(capacity=0), "capacity", id="no memory"),
    ],
)
def test_limits_that_make_no_sense_are_refused_by_name(limits: Callable[[], EventLimits], name: str) -> None:
    with pytest.raises(ValueError, match=f"Limits: {name} must be above 0"):
        limits()


async def test_the_memory_is_bounded_and_an_event_that_was_forgotten_is_created_again() -> None:
    limits = EventLimits(capacity=2)
    subjects = [POD._replace(uid=str(each)) for each in range(3)]
    (write,) = (await correlate([happened(subject=each) for each in (*subjects, subjects[0])], 0, limits)).writes
    assert (write.count, write.exists) == (1, False)


@given(st.lists(st.tuples(st.sampled_from("gp"), st.integers(0, 5)), max_size=40), st.integers(1, 4))
def test_recent_keeps_what_was_used_last(steps: list[tuple[str, int]], capacity: int) -> None:
    recent: LruDict[int, str] = LruDict(capacity)
    model: list[int] = []
    for step, key in steps:
        if step == "g":
            assert recent.get(key) == (str(key) if key in model else None)
            model = [*(each for each in model if each != key), key] if key in model else model
        else:
            model = [*(each for each in model if each != key), key]
            assert recent.put(key, str(key)) == (str(model[0]) if len(model) > capacity else None)
            model = model[-capacity:]
        assert recent.values() == [str(each) for each in model]
        assert recent.oldest() == ((model[0], str(model[0])) if model else None)


def test_a_memory_needs_room() -> None:
    with pytest.raises(ValueError, match="room for at least 1"):
        LruDict(0)


async def test_a_storm_about_many_objects_costs_bounded_memory() -> None:
    correlator = CoreCorrelator(EventLimits(capacity=16), FakeClock())
    for each in range(2000):
        correlator.observe(happened(str(each), subject=POD._replace(uid=str(each % 500))))
    memories = (correlator._counted, correlator._similar._groups, correlator._filter._buckets)
    assert [len(memory) for memory in memories] == [16, 16, 16]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400)), max_size=60))
def test_j133_no_more_than_the_burst_and_the_refill_passes_in_any_order_of_events(steps: list[tuple[int, int]]) -> None:
    clock, now, passed = FakeClock(), 0.0, 0
    correlator = CoreCorrelator(EventLimits(burst=3), clock)
    for message, seconds in steps:
        clock._now += seconds
        now += seconds
        passed += not correlator.observe(happened(str(message))).spam
        assert passed <= 3 + math.floor(now / 300 + 1e-6)
