"""Sending (behaviours J134-J136, J139): retried errors, other errors, and the end. A scripted writer and a fake clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from kubeloop.controller.events.correlation import Correlator, EventLimits, EventWrite
from kubeloop.controller.events.drop_log import INTERVAL
from kubeloop.controller.events.occurrence import EventSubject, Occurrence
from kubeloop.controller.events.sender import PAUSE, QUEUE, TRIES, EventSender
from kubeloop.controller.events.sinks import CoreEvents, SeriesEvents
from kubeloop.meta import (
    AlreadyExists,
    ApiError,
    ConnectionRefused,
    DeadlineError,
    DecodeError,
    Forbidden,
    InternalError,
    Invalid,
    Status,
    TransportError,
)
from kubeloop.timing import FakeClock

HAPPENED = Occurrence(EventSubject("v1", "Pod", "shop", "p", "u"), "Normal", "R", "m", datetime(2026, 1, 1, tzinfo=UTC))


def refusal(kind: type[ApiError]) -> ApiError:
    return kind(Status(reason=kind.reason, code=kind.code, message="no"))


@dataclass
class ScriptedWriter:
    """Gives the scripted answers, then accepts everything."""

    script: list[Exception] = field(default_factory=list)
    writes: list[EventWrite] = field(default_factory=list)

    async def write(self, write: EventWrite) -> None:
        self.writes.append(write)
        if self.script:
            raise self.script.pop(0)


class NoChance(random.Random):
    """The first pause is half of what it may be."""

    def random(self) -> float:
        return 0.5


def sender_of(writer: ScriptedWriter, clock: FakeClock, correlator: Correlator | None = None) -> EventSender:
    return EventSender("events-test", correlator or CoreEvents(limits=EventLimits()).correlator(clock), writer, clock=clock, rng=NoChance())


async def until_idle(clock: FakeClock) -> list[float]:
    """Let the clock run through all pauses; returns them."""
    pauses: list[float] = []
    await clock.advance(0)
    while (due := clock.next_due) is not None:
        pauses.append(due)
        await clock.advance(due)
    return pauses


LOST = TransportError("connection lost")


@pytest.mark.parametrize(
    ("script", "tries", "pauses", "sent", "dropped"),
    [
        pytest.param([], 1, [], 1, {}, id="success stops"),
        pytest.param([LOST], 2, [5], 1, {}, id="a lost connection is tried again, after a random part of 10 s at first"),
        pytest.param([LOST] * 3, 4, [5, 10, 10], 1, {}, id="then every 10 s"),
        pytest.param([LOST] * 20, 12, [5, *[10] * 10], 0, {"unanswered": 1}, id="12 tries in all"),
        pytest.param([ConnectionRefused("refused")], 2, [5], 1, {}, id="a refused connection is tried again"),
        pytest.param([DeadlineError("late")], 2, [5], 1, {}, id="no answer in time is tried again"),
        pytest.param([DecodeError("html")], 2, [5], 1, {}, id="an answer that is no object is tried again"),
        pytest.param([refusal(Forbidden)], 1, [], 0, {"refused": 1}, id="a status error is not tried again"),
        pytest.param([refusal(InternalError)], 1, [], 0, {"refused": 1}, id="not even an internal one"),
        pytest.param([refusal(Invalid)], 1, [], 0, {"refused": 1}, id="nor an invalid event"),
        pytest.param([refusal(AlreadyExists)], 1, [], 0, {"refused": 1}, id="nor a name that is taken"),
        pytest.param([LOST, refusal(AlreadyExists)], 2, [5], 1, {}, id="a name that is taken after a lost answer is our own event"),
        pytest.param([ValueError("a path")], 1, [], 0, {"failed": 1}, id="a request that cannot be made is not tried again"),
    ],
)
async def test_j134(script: Sequence[Exception], tries: int, pauses: list[float], sent: int, dropped: dict[str, int]) -> None:
    clock, writer = FakeClock(), ScriptedWriter(list(script))
    sender = sender_of(writer, clock)
    sender.start()
    sender.put(HAPPENED)
    assert await until_idle(clock) == pauses
    assert (len(writer.writes), sender.counts.sent, sender.counts.dropped) == (tries, sent, dropped)
    await sender.close(1)


async def test_j139_a_series_whose_event_came_back_between_patch_and_create_is_tried_again() -> None:
    clock, writer = FakeClock(), ScriptedWriter()
    sender = sender_of(writer, clock, SeriesEvents().correlator(clock))
    sender.start()
    sender.put(HAPPENED)
    await clock.advance(0)
    writer.script = [refusal(AlreadyExists)]
    sender.put(HAPPENED)
    await clock.advance(PAUSE)
    assert [(write.count, write.exists) for write in writer.writes] == [(1, False), (2, True), (2, True)]
    assert (sender.counts.sent, sender.counts.dropped) == (2, {})
    await sender.close(1)


async def test_j138_a_series_is_refreshed_and_finished_by_the_senders_own_timer() -> None:
    clock, writer = FakeClock(), ScriptedWriter()
    sender = sender_of(writer, clock, SeriesEvents().correlator(clock))
    sender.start()
    for _ in range(35):
        sender.put(HAPPENED)
        await clock.advance(60)
    await clock.advance(360)
    assert [write.count for write in writer.writes] == [1, 2, 31, 35]
    assert (sender.counts.recorded, sender.counts.sent, sender.counts.coalesced) == (35, 4, 33)
    assert clock.waiting == 0
    await sender.close(1)


async def test_j136_the_end_stops_a_pause_and_tries_once_more_each_that_waits() -> None:
    clock, writer = FakeClock(), ScriptedWriter([LOST] * 3)
    sender = sender_of(writer, clock)
    sender.start()
    for number in range(4):
        sender.put(HAPPENED._replace(message=str(number)))
    await clock.advance(0)
    assert (len(writer.writes), clock.waiting) == (1, 1)
    await sender.close(60)
    assert [write.occurrence.message for write in writer.writes] == ["0", "0", "1", "2", "3"]
    assert (sender.counts.sent, sender.counts.dropped) == (2, {"unanswered": 2})
    assert clock.waiting == 0


async def test_j136_what_a_server_does_not_answer_is_dropped_at_the_end_of_the_flush() -> None:
    class Silent(ScriptedWriter):
        async def write(self, write: EventWrite) -> None:
            await asyncio.Event().wait()

    clock = FakeClock()
    sender = sender_of(Silent(), clock)
    sender.start()
    for _ in range(3):
        sender.put(HAPPENED)
    closing = asyncio.ensure_future(sender.close(5))
    await clock.advance(4.9)
    assert not closing.done()
    await clock.advance(0.1)
    await closing
    assert sender.counts.dropped == {"closed": 3}
    sender.put(HAPPENED)
    assert sender.counts.dropped == {"closed": 4}
    await sender.close(0.01)


async def test_j136_a_sender_that_was_never_started_ends_at_once() -> None:
    sender = sender_of(ScriptedWriter(), FakeClock())
    sender.put(HAPPENED)
    await sender.close(60)


async def test_what_does_not_fit_into_the_queue_is_dropped_at_once() -> None:
    sender = sender_of(ScriptedWriter(), FakeClock())
    for _ in range(QUEUE + 5):
        sender.put(HAPPENED)
    assert (sender.waiting, sender.counts.dropped) == (QUEUE, {"full": 5})


async def test_a_flood_of_dropped_events_is_one_line_and_then_one_with_their_number_per_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    sender = sender_of(ScriptedWriter([refusal(Forbidden)] * 30), clock)
    sender.start()
    for number in range(20):
        sender.put(HAPPENED._replace(reason=f"R{number}"))
    await clock.advance(0)
    assert warnings_of(caplog) == ['event "R0" is dropped: Forbidden: no']
    await clock.advance(INTERVAL)
    assert warnings_of(caplog)[1:] == ['19 more events are dropped (refused); the last: event "R19" is dropped: Forbidden: no']
    sender.put(HAPPENED._replace(reason="R20"))
    await clock.advance(0)
    assert len(warnings_of(caplog)) == 2
    await sender.close(1)
    assert warnings_of(caplog)[2:] == ['1 more event is dropped (refused); the last: event "R20" is dropped: Forbidden: no']


async def test_events_that_are_dropped_for_different_reasons_are_logged_apart(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    sender = sender_of(ScriptedWriter([refusal(Forbidden)]), clock)
    for _ in range(QUEUE + 3):
        sender.put(HAPPENED)
    sender.start()
    await clock.advance(0)
    assert [line.partition(": ")[2] for line in warnings_of(caplog)] == [f"{QUEUE} events are already queued", "Forbidden: no"]
    await clock.advance(INTERVAL)
    assert warnings_of(caplog)[2:] == [
        f'2 more events are dropped (full); the last: event "R" is dropped: {QUEUE} events are already queued'
    ]
    await clock.advance(2 * INTERVAL)
    assert len(warnings_of(caplog)) == 3
    await sender.close(1)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


async def test_a_series_is_written_at_the_end_if_it_was_only_counted() -> None:
    clock, writer = FakeClock(), ScriptedWriter()
    sender = sender_of(writer, clock, SeriesEvents().correlator(clock))
    sender.start()
    for _ in range(5):
        sender.put(HAPPENED)
    await sender.close(60)
    assert [write.count for write in writer.writes] == [1, 2, 5]


async def test_a_key_function_that_raises_costs_one_event() -> None:
    def broken(occurrence: Occurrence) -> str:
        return {"R": "key"}[occurrence.reason]

    clock, writer = FakeClock(), ScriptedWriter()
    sender = sender_of(writer, clock, CoreEvents(limits=EventLimits(spam_key=broken)).correlator(clock))
    sender.start()
    sender.put(HAPPENED._replace(reason="Other"))
    sender.put(HAPPENED)
    await clock.advance(0)
    assert (sender.counts.sent, sender.counts.dropped) == (1, {"failed": 1})
    await sender.close(1)


async def test_the_log_does_not_quote_an_event_that_a_server_found_invalid(caplog: pytest.LogCaptureFixture) -> None:
    status = Status(reason="Invalid", code=422, message='Event "x" is invalid: message: Invalid value: "hunter2"')
    clock, writer = FakeClock(), ScriptedWriter([Invalid(status)])
    sender = sender_of(writer, clock)
    sender.start()
    sender.put(HAPPENED._replace(message="hunter2"))
    await clock.advance(0)
    await sender.close(1)
    assert 'event "R" is dropped: Invalid 422' in caplog.text
    assert "hunter2" not in caplog.text


def test_a_refused_event_is_tried_12_times_at_most_in_about_two_minutes() -> None:
    assert (TRIES, PAUSE) == (12, 10.0)


async def test_a_defect_of_the_correlation_costs_the_events_of_one_step_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    writer = ScriptedWriter()
    sender = sender_of(writer, clock)
    observe, defects = sender._observe, [RuntimeError("a defect")]

    def broken(occurrence: Occurrence) -> object:
        if defects:
            raise defects.pop()
        return observe(occurrence)

    monkeypatch.setattr(sender, "_observe", broken)
    sender.start()
    sender.put(HAPPENED)
    await clock.advance(0)
    sender.put(HAPPENED)
    await clock.advance(60)
    assert len(writer.writes) == 1
    logged = [record for record in caplog.records if "could not be sent and are dropped" in record.getMessage()]
    assert [record.exc_info is not None for record in logged] == [True]
    await sender.close(1)
