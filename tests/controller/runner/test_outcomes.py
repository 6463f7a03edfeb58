"""What follows from a reconcile's outcome: requeues, their priority, panics, counts (behaviours R203-R206, R209, R210)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kubeloop.controller.result import Result, TerminalError
from kubeloop.meta import Conflict, KubeloopError, ObjectKey, Status
from kubeloop.timing import FakeClock, TimeLimit
from tests.controller.runner.bench import KEY, OTHER, Bench


@pytest.mark.parametrize(
    ("result", "times", "outcome"),
    [
        pytest.param(None, [0], "success", id="nothing more to do"),
        pytest.param(Result(), [0], "success", id="an empty result is none"),
        pytest.param(Result(requeue_after=30), [0, 30], "requeue_after", id="R205: after exactly that delay"),
        pytest.param(Result(requeue=True), [0, 1], "requeue", id="with back-off"),
    ],
)
async def test_result(result: Result | None, times: list[float], outcome: str) -> None:
    async with Bench() as bench:
        bench.succeeds(result)
        bench.queue.add(KEY)
        await bench.clock.advance(100)
        assert bench.times == times
        assert bench.outcomes[0] == outcome
        assert bench.workers.counts.errors == 0


async def test_a_requeue_with_back_off_grows_like_that_of_errors_until_a_success() -> None:
    """R203."""
    async with Bench() as bench:
        for _ in range(3):
            bench.succeeds(Result(requeue=True))
        bench.queue.add(KEY)
        await bench.clock.advance(100)
        assert bench.times == [0, 1, 3, 7]
        assert bench.queue.retries(KEY) == 0


@pytest.mark.parametrize(
    ("result", "priority"),
    [
        pytest.param(Result(requeue_after=10), 7, id="R206: it keeps its priority when it comes back after a delay"),
        pytest.param(Result(requeue=True), 7, id="R206: and with back-off"),
        pytest.param(Result(requeue_after=10, priority=-5), -5, id="R206: unless the result names one"),
        pytest.param(Result(requeue=True, priority=100), 100, id="R206: with back-off, too"),
        pytest.param(KubeloopError("x"), 7, id="R206: after an error it keeps its priority"),
        pytest.param(ValueError("x"), 7, id="R206: whatever the error"),
    ],
)
async def test_priority_of_the_next_reconcile(result: Result | Exception, priority: int) -> None:
    async with Bench() as bench:
        bench.fails(result) if isinstance(result, Exception) else bench.succeeds(result)
        bench.queue.add(KEY, priority=7)
        await bench.clock.advance(100)
        assert bench.priorities == [7, priority]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param({"requeue": True, "requeue_after": 5}, "give one of them", id="both ways to come back"),
        pytest.param({"priority": 5}, "is that of the next reconcile", id="a priority of nothing"),
    ],
)
def test_results_that_contradict_themselves_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Result(**arguments)


@pytest.mark.parametrize(
    ("error", "panics"),
    [
        pytest.param(SystemExit(3), 1, id="R209: an end of the program that a reconcile wants"),
        pytest.param(AttributeError("'NoneType' object has no attribute 'x'"), 1, id="R209: a missing attribute"),
        pytest.param(IndexError("list index out of range"), 1, id="R209: an index out of range"),
        pytest.param(GeneratorExit(), 1, id="R209: a BaseException that is no Exception"),
        pytest.param(BaseExceptionGroup("several", [SystemExit(1), ValueError()]), 1, id="R209: several at once"),
        pytest.param(OSError("disk full"), 0, id="an error of the world is no panic"),
        pytest.param(KubeloopError("not yet"), 0, id="nor is one of the tree"),
        pytest.param(Conflict(Status(message="x")), 0, id="nor is a conflict"),
    ],
)
async def test_what_a_reconcile_raises_is_contained_and_tried_again(error: BaseException, panics: int) -> None:
    async with Bench() as bench:
        bench.fails(error)
        bench.queue.add(KEY)
        bench.queue.add(OTHER)
        await bench.clock.advance(1)
        assert [key for key, _ in bench.calls] == [KEY, OTHER, KEY]
        assert (bench.workers.counts.errors, bench.workers.counts.panics) == (1, panics)
        assert bench.outcomes == ["error", "success", "success"]


async def test_a_reconcile_that_wants_to_end_the_program_gets_a_hint(caplog: pytest.LogCaptureFixture) -> None:
    async with Bench() as bench:
        bench.fails(SystemExit(3))
        bench.queue.add(KEY)
        await bench.clock.advance(0)
    assert "bench shop/web: reconcile raised SystemExit(3), which does not end the program (ask its manager: manager.request_stop())" in (
        caplog.text
    )


async def test_a_keyboard_interrupt_goes_through() -> None:
    bench = Bench()
    bench.fails(KeyboardInterrupt())
    bench.queue.add(KEY)
    turn = bench.workers._attempt(await bench.queue.get())
    with pytest.raises(KeyboardInterrupt):
        await turn
    bench.queue.done(KEY)


async def test_counts_tell_the_outcomes_apart() -> None:
    async with Bench() as bench:
        for outcome in (None, Result(requeue=True), Result(requeue_after=1)):
            bench.succeeds(outcome)
            bench.queue.add(KEY)
            await bench.clock.advance(0)
        bench.fails(TerminalError("never"))
        await bench.clock.advance(1)
        counts = bench.workers.counts
        assert (counts.successes, counts.requeues_asked, counts.requeues_after, counts.terminal_errors) == (1, 1, 1, 1)
        assert bench.outcomes == ["success", "requeue", "requeue_after", "error"]


async def test_conflicts_are_worth_a_line_only_if_they_go_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with Bench() as bench:
        for _ in range(5):
            bench.fails(Conflict(Status(message="changed")))
        bench.queue.add(KEY)
        await bench.clock.advance(100)
    levels = [record.levelno for record in caplog.records if "changed" in record.getMessage()]
    assert levels == [logging.DEBUG] * 3 + [logging.INFO] * 2


async def test_each_reconcile_has_its_own_id_in_its_log_records(caplog: pytest.LogCaptureFixture) -> None:
    async with Bench() as bench:
        for _ in range(2):
            bench.fails(KubeloopError("x"))
        bench.queue.add(KEY)
        await bench.clock.advance(10)
    fields = [record.__dict__["kubeloop"] for record in caplog.records]
    assert len({one["reconcile"] for one in fields}) == 2
    assert {one["key"] for one in fields} == {"shop/web"}


async def test_a_paused_controller_begins_no_reconcile_and_loses_none() -> None:
    async with Bench() as bench:
        bench.workers.gate.pause()
        bench.queue.add(KEY)
        bench.queue.add(OTHER)
        await bench.clock.advance(0)
        assert bench.calls == []
        bench.queue.add(KEY)
        bench.workers.gate.resume()
        await bench.clock.advance(0)
        assert [key for key, _ in bench.calls] == [KEY, OTHER, KEY]


async def test_a_paused_controller_can_be_stopped() -> None:
    bench = Bench()
    async with bench:
        bench.workers.gate.pause()
        bench.queue.add(KEY)
        await bench.clock.advance(0)
    assert bench.calls == []


async def test_a_time_limit_is_no_cause_when_the_program_ends() -> None:
    """R210."""
    clock = FakeClock()
    found: list[bool] = []

    async def limited() -> None:
        async with TimeLimit(clock, 10) as deadline:
            try:
                await asyncio.Event().wait()
            finally:
                found.append(deadline.expired)

    task = asyncio.ensure_future(limited())
    await clock.advance(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert found == [False]
    assert not clock.waiting


async def test_a_time_limit_that_passes_together_with_the_end_is_an_end() -> None:
    """R210."""
    entered: list[TimeLimit] = []

    async def limited() -> None:
        async with TimeLimit(FakeClock(), 10) as deadline:
            entered.append(deadline)
            await asyncio.Event().wait()

    task = asyncio.ensure_future(limited())
    await asyncio.sleep(0)
    entered[0].end()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_within_its_time_limit_a_reconcile_is_left_alone_and_no_timer_remains() -> None:
    async def quick(key: ObjectKey) -> None:
        await asyncio.sleep(0)

    async with Bench(quick, timeout=10) as bench:
        bench.queue.add(KEY)
        await bench.clock.advance(20)
        assert (bench.workers.counts.reconciles, bench.workers.counts.timeouts, bench.workers.counts.hanging) == (1, 0, 0)
