"""What the outcome of a reconcile means: retry, requeue, give up (behaviours R203-R205, R209, R210; X6 decided the other way)."""

import asyncio
import logging
from collections import Counter
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from kubeloop.controller.result import Result, TerminalError
from kubeloop.meta import KubeloopError, ObjectKey
from kubeloop.transport import LogContext, logger_with_context
from tests.controller.runner.bench import KEY, OTHER, Bench


async def test_an_error_is_tried_again_with_growing_delay_until_it_succeeds() -> None:
    async with Bench() as bench:
        for _ in range(3):
            bench.fails(KubeloopError("not yet"))
        bench.queue.add(KEY)
        await bench.clock.advance(100)
        assert bench.times == [0, 1, 3, 7]
        assert bench.workers.counts.errors == 3
        assert bench.queue.retries(KEY) == 0


async def test_a_result_makes_the_next_error_start_from_the_shortest_delay() -> None:
    async with Bench() as bench:
        bench.fails(KubeloopError("a"))
        bench.succeeds()
        bench.fails(KubeloopError("b"))
        bench.queue.add(KEY)
        await bench.clock.advance(10)
        bench.queue.add(KEY)
        await bench.clock.advance(10)
        assert bench.times == [0, 1, 10, 11]


async def test_a_programming_error_is_an_error_like_any_other_and_its_log_names_the_key(caplog: pytest.LogCaptureFixture) -> None:
    async with Bench() as bench:
        bench.fails(ZeroDivisionError("oops"))
        bench.queue.add(KEY)
        await bench.clock.advance(1)
        assert bench.times == [0, 1]
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "bench shop/web: reconcile raised ZeroDivisionError: oops; next try in 1.000 s" in record.getMessage()
    assert record.exc_info is not None


async def test_an_error_of_the_tree_is_logged_in_one_line_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async with Bench() as bench:
        bench.fails(KubeloopError("no such zone"))
        bench.queue.add(KEY)
        await bench.clock.advance(0)
    (record,) = caplog.records
    assert record.getMessage() == "bench shop/web: no such zone; next try in 1.000 s"
    assert record.exc_info is None


async def test_a_terminal_error_is_counted_and_logged_and_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """R204"""
    async with Bench() as bench:
        bench.fails(TerminalError("replicas must not be negative"))
        bench.queue.add(KEY)
        await bench.clock.advance(1000)
        assert bench.times == [0]
        assert (bench.workers.counts.errors, bench.workers.counts.terminal_errors) == (1, 1)
    assert "shop/web: replicas must not be negative (not retried until it changes)" in caplog.text


async def test_after_a_terminal_error_the_next_error_starts_from_the_shortest_delay() -> None:
    """X6: a deviation."""
    async with Bench() as bench:
        bench.fails(KubeloopError("a"))
        bench.fails(KubeloopError("a"))
        bench.fails(TerminalError("b"))
        bench.fails(KubeloopError("c"))
        bench.queue.add(KEY)
        await bench.clock.advance(10)
        bench.queue.add(KEY)
        await bench.clock.advance(10)
        assert bench.times == [0, 1, 3, 10, 11]


async def test_requeue_after_comes_back_after_exactly_that_delay_and_forgets_the_back_off() -> None:
    async with Bench() as bench:
        bench.fails(KubeloopError("a"))
        bench.succeeds(Result(requeue_after=30))
        bench.fails(KubeloopError("b"))
        bench.queue.add(KEY)
        await bench.clock.advance(100)
        assert bench.times == [0, 1, 31, 32]


async def test_a_failing_key_delays_no_other() -> None:
    async with Bench() as bench:
        bench.fails(KubeloopError("a"))
        bench.queue.add(KEY)
        bench.queue.add(OTHER)
        await bench.clock.advance(0)
        assert [key for key, _ in bench.calls] == [KEY, OTHER]


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_requeue_without_a_delay_is_refused_with_the_way_out(seconds: float) -> None:
    with pytest.raises(ValueError, match="raise an error to be called again with back-off"):
        Result(requeue_after=seconds)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        pytest.param({"requeue_after": "30"}, "requeue_after must be a number of seconds, not '30'", id="text for seconds"),
        pytest.param({"requeue_after": timedelta(minutes=1)}, r"write requeue_after=....total_seconds\(\)", id="a timedelta"),
        pytest.param({"requeue_after": float("inf")}, "is never; return None", id="never"),
        pytest.param({"requeue": True, "priority": "high"}, "priority must be a whole number, not 'high'", id="text for a priority"),
        pytest.param({"requeue": True, "priority": 1.5}, "priority must be a whole number, not 1.5", id="half a priority"),
        pytest.param({"requeue": "yes"}, "requeue must be True or False, not 'yes'", id="text for a switch"),
    ],
)
def test_a_result_of_other_types_is_refused_where_it_is_made(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        Result(**arguments)


async def test_anything_but_a_result_is_an_error() -> None:
    async with Bench() as bench:
        bench.script.append(lambda: 5)  # type: ignore[arg-type, return-value]  # what an untyped program may do
        bench.queue.add(KEY)
        await bench.clock.advance(0)
        assert "must return a Result or None, not int" in bench.workers.counts.last_error


async def test_a_reconcile_that_takes_too_long_is_cancelled_and_counted() -> None:
    cancelled: list[ObjectKey] = []

    async def hang(key: ObjectKey) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(key)
            raise

    async with Bench(hang, timeout=30) as bench:
        bench.queue.add(KEY)
        await bench.clock.advance(29)
        assert not cancelled
        await bench.clock.advance(1)
        assert cancelled == [KEY]
        assert bench.workers.counts.timeouts == 1
        assert bench.queue.stats.delayed == 1


async def test_a_timeout_of_something_within_is_an_error_but_not_a_timeout_of_the_reconcile() -> None:
    async with Bench(timeout=60) as bench:
        bench.fails(TimeoutError())
        bench.queue.add(KEY)
        await bench.clock.advance(0)
        assert (bench.workers.counts.errors, bench.workers.counts.timeouts) == (1, 0)


async def test_a_cancelled_child_of_a_reconcile_does_not_end_the_worker() -> None:
    async with Bench() as bench:
        bench.fails(asyncio.CancelledError())
        bench.queue.add(KEY)
        await bench.clock.advance(1)
        assert bench.times == [0, 1]


async def test_one_key_is_never_reconciled_twice_at_once_while_others_run_beside_it() -> None:
    running: list[ObjectKey] = []
    together = 0
    gate = asyncio.Event()

    async def reconcile(key: ObjectKey) -> None:
        nonlocal together
        assert key not in running
        running.append(key)
        together = max(together, len(running))
        await gate.wait()
        running.remove(key)

    # T234
    async with Bench(reconcile, count=3) as bench:
        for _ in range(3):
            bench.queue.add(KEY)
            bench.queue.add(OTHER)
            await bench.clock.advance(0)
        assert together == 2
        gate.set()
        await bench.clock.advance(0)
        assert bench.workers.counts.reconciles == 4


@pytest.mark.parametrize("count", [pytest.param(1, id="one worker"), pytest.param(3, id="three workers")])
async def test_as_many_keys_are_reconciled_at_once_as_there_are_workers_and_no_more(count: int) -> None:
    """T234"""
    running = together = 0
    gate = asyncio.Semaphore(0)

    async def reconcile(key: ObjectKey) -> None:
        nonlocal running, together
        running += 1
        together = max(together, running)
        await gate.acquire()
        running -= 1

    async with Bench(reconcile, count=count) as bench:
        for number in range(10):
            bench.queue.add(KEY._replace(name=f"web-{number}"))
        await bench.clock.advance(0)
        assert running == count
        for ended in range(1, 11):
            gate.release()
            await bench.clock.advance(0)
            assert running == min(count, 10 - ended)
        assert together == count
        assert bench.workers.counts.reconciles == 10


async def test_more_keys_may_ask_to_be_requeued_at_once_than_any_buffer_holds() -> None:
    """T236"""
    seen: Counter[str] = Counter()

    async def reconcile(key: ObjectKey) -> Result | None:
        seen[key.name] += 1
        return Result(requeue_after=0.1) if seen[key.name] < 3 else None

    async with Bench(reconcile) as bench:
        for number in range(500):
            bench.queue.add(KEY._replace(name=f"web-{number}"))
        await bench.clock.advance(1)
        assert {seen[f"web-{number}"] for number in range(500)} == {3}


async def test_stop_lets_a_running_reconcile_end_and_starts_no_other() -> None:
    started: list[ObjectKey] = []
    gate = asyncio.Event()

    async def reconcile(key: ObjectKey) -> None:
        started.append(key)
        await gate.wait()

    bench = Bench(reconcile)
    task = asyncio.ensure_future(bench.workers.run())
    bench.queue.add(KEY)
    bench.queue.add(OTHER)
    await bench.clock.advance(0)
    bench.workers.stop()
    await bench.clock.advance(0)
    assert not task.done()
    gate.set()
    await asyncio.wait_for(task, 5)
    assert started == [KEY]


async def test_log_records_of_a_reconcile_carry_cluster_controller_key_and_their_own_id(caplog: pytest.LogCaptureFixture) -> None:
    log = logger_with_context("test.reconcile")

    async def reconcile(key: ObjectKey) -> None:
        await asyncio.to_thread(log.warning, "hello")

    async with Bench(reconcile) as bench:
        bench.queue.add(KEY)
        while not bench.workers.counts.reconciles:
            await asyncio.sleep(0.001)
    log.warning("outside")
    inside, outside = (record.__dict__["kubeloop"] for record in caplog.records)
    assert inside.pop("reconcile")
    assert (inside, outside) == ({"cluster": "test", "controller": "bench", "key": "shop/web"}, {})


def test_a_controller_without_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 worker"):
        Bench(count=0)


async def test_workers_that_come_later_work_under_the_context_of_the_run() -> None:
    """A leader's fence and the fields of the log are there; the task that asks for more workers (settings that change) has neither."""
    whose = ContextVar("whose", default="unset")
    seen: list[tuple[str, str]] = []
    both = asyncio.Event()

    async def reconcile(key: ObjectKey) -> None:
        record = logging.makeLogRecord({})
        LogContext().filter(record)
        seen.append((whose.get(), vars(record)["kubeloop"]["controller"]))
        if len(seen) == 2:
            both.set()
        await both.wait()

    whose.set("the run's")
    async with Bench(reconcile) as bench:
        await bench.clock.advance(0)
        whose.set("the settings'")
        bench.workers.resize(2)
        bench.queue.add(KEY)
        bench.queue.add(OTHER)
        await asyncio.wait_for(both.wait(), 20)
    assert seen == [("the run's", "bench")] * 2
