"""The supervisor: what it does with failures, restarts and the end; and how tasks are ended without losing a cancellation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from kubeloop.tasks import Supervisor, close_all, end_tasks, finish, wait_within
from kubeloop.timing import Backoff, FakeClock

LOG = logging.getLogger("tests.tasks")


class Work:
    """A work that fails as often as asked, and then runs until it is cancelled."""

    def __init__(self, failures: int, error: Callable[[], BaseException] = lambda: ValueError("broken")) -> None:
        self.starts = 0
        self.cancelled = False
        self._failures = failures
        self._error = error

    async def run(self) -> None:
        self.starts += 1
        if self.starts <= self._failures:
            raise self._error()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


def supervisor(clock: FakeClock) -> Supervisor:
    return Supervisor(clock, LOG)


def backoff(clock: FakeClock) -> Backoff:
    return Backoff(initial=1, cap=30, jitter=0, clock=clock)


async def test_a_failure_is_logged_once_with_its_traceback_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    async with supervisor(clock) as tasks:
        tasks.start(Work(1).run, name="reader", restart=backoff(clock))
        await clock.advance(10)
        assert tasks.failures == {"reader": 1}
    [record] = [one for one in caplog.records if one.name == LOG.name]
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError
    assert record.getMessage() == "reader failed (ValueError); retrying"


async def test_a_failed_task_is_restarted_with_growing_delays() -> None:
    clock = FakeClock()
    work = Work(3)
    async with supervisor(clock) as tasks:
        tasks.start(work.run, name="reader", restart=backoff(clock))
        starts = []
        for _ in range(8):
            await clock.advance(0)
            starts.append(work.starts)
            await clock.advance(1)
    assert starts == [1, 2, 2, 3, 3, 3, 3, 4]


async def test_a_restarted_task_is_healthy_when_it_has_run_for_as_long_as_it_waited() -> None:
    clock = FakeClock()
    async with supervisor(clock) as tasks:
        tasks.start(Work(1).run, name="reader", restart=backoff(clock))
        states = []
        for _ in range(3):
            await clock.advance(0.5)
            states.append(tasks.healthy("reader"))
        await clock.advance(1)
        states.append(tasks.healthy("reader"))
    assert states == [False, False, False, True]


async def test_a_part_that_fails_makes_its_task_unhealthy_until_it_recovers() -> None:
    async with supervisor(FakeClock()) as tasks:
        task = tasks.start(Work(0).run, name="reader")
        task.failed(ValueError("one object"), "widgets")
        task.failed(ValueError("another object"), "gadgets")
        task.recovered("widgets")
        assert not tasks.healthy("reader")
        task.recovered("gadgets")
        assert tasks.healthy("reader")
        assert tasks.failures["reader"] == 2


async def test_a_cancellation_from_within_is_a_failure_like_any_other() -> None:
    clock = FakeClock()
    work = Work(1, asyncio.CancelledError)
    async with supervisor(clock) as tasks:
        tasks.start(work.run, name="reader", restart=backoff(clock))
        await clock.advance(1)
        assert (work.starts, tasks.failures["reader"]) == (2, 1)


async def test_stopping_cancels_and_awaits_tasks_that_run_and_tasks_that_await_their_restart() -> None:
    clock = FakeClock()
    running, failing = Work(0), Work(5)
    tasks = supervisor(clock)
    started = [tasks.start(running.run, name="running"), tasks.start(failing.run, name="failing", restart=backoff(clock))]
    await clock.advance(0)
    await tasks.stop()
    assert running.cancelled
    assert all(task.done for task in started)
    await clock.advance(60)
    assert failing.starts == 1


async def test_a_task_that_returns_is_done_and_not_restarted() -> None:
    clock = FakeClock()

    async def once() -> None:
        return

    async with supervisor(clock) as tasks:
        task = tasks.start(once, name="once")
        await clock.advance(60)
        assert task.done
        assert tasks.failures == {"once": 0}


async def until_cancelled(error: Exception | None = None) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        if error is not None:
            raise error


async def test_ending_tasks_raises_what_they_failed_with() -> None:
    tasks = [asyncio.ensure_future(until_cancelled(error)) for error in (None, ValueError("a"), KeyError("b"))]
    await asyncio.sleep(0)
    with pytest.raises(ExceptionGroup) as caught:
        await end_tasks(*tasks, None)
    assert [type(one) for one in caught.value.exceptions] == [ValueError, KeyError]
    assert all(task.done() for task in tasks)


async def test_ending_tasks_lets_the_cancellation_of_the_caller_through() -> None:
    release = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await release.wait()

    task = asyncio.ensure_future(slow())
    await asyncio.sleep(0)
    caller = asyncio.ensure_future(end_tasks(task))
    await asyncio.sleep(0)
    caller.cancel()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_closing_runs_every_step_and_raises_every_error() -> None:
    done: list[str] = []

    def step(name: str, error: BaseException | None = None) -> Callable[[], asyncio.Future[None]]:
        async def run() -> None:
            done.append(name)
            if error is not None:
                raise error

        return lambda: asyncio.ensure_future(run())

    with pytest.raises(ExceptionGroup) as caught:
        await close_all(step("a", ValueError("a")), step("b"), step("c", KeyError("c")))
    assert done == ["a", "b", "c"]
    assert [type(one) for one in caught.value.exceptions] == [ValueError, KeyError]
    with pytest.raises(ValueError, match="alone"):
        await close_all(step("d", ValueError("alone")), step("e"))
    with pytest.raises(asyncio.CancelledError):
        await close_all(step("f", asyncio.CancelledError()), step("g"))
    assert done[-1] == "g"


async def test_a_supervisor_whose_stop_is_cancelled_ends_also_what_its_tasks_start_at_their_end() -> None:
    tasks = supervisor(FakeClock())
    last = Work(0)

    async def first() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            tasks.start(last.run, name="last")
            await asyncio.sleep(0)

    tasks.start(first, name="first")
    await asyncio.sleep(0)
    stopping = asyncio.ensure_future(tasks.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert last.cancelled
    assert tasks.failures == {"first": 0, "last": 0}


async def test_a_task_that_ends_itself_and_others_waits_for_the_others_and_is_cancelled() -> None:
    other = Work(0)
    ended: list[bool] = []

    async def run() -> None:
        try:
            await end_tasks(own, others)
        finally:
            ended.append(others.done())

    others = asyncio.ensure_future(other.run())
    own = asyncio.ensure_future(run())
    await asyncio.wait([own])
    assert own.cancelled()
    assert ended == [True]


async def test_work_that_is_finished_ends_although_its_caller_is_cancelled_twice() -> None:
    release = asyncio.Event()
    done: list[str] = []

    async def close() -> None:
        await release.wait()
        done.append("closed")

    caller = asyncio.ensure_future(finish(close()))
    for _ in range(2):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == ["closed"]


async def test_work_that_fails_after_its_caller_was_cancelled_is_the_cause_of_the_cancellation() -> None:
    release = asyncio.Event()

    async def close() -> None:
        await release.wait()
        raise ValueError("broken")

    caller = asyncio.ensure_future(finish(close()))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.sleep(0)
    release.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await caller
    assert isinstance(caught.value.__cause__, ValueError)


async def test_a_wait_with_a_limit_ends_with_its_tasks_or_its_time_and_cancels_nothing() -> None:
    clock = FakeClock()
    event = asyncio.Event()
    task = asyncio.ensure_future(event.wait())
    waiting = asyncio.ensure_future(wait_within(clock, 5, task))
    await clock.advance(5)
    assert await waiting is False
    assert not task.done()
    waiting = asyncio.ensure_future(wait_within(clock, None, task))
    await clock.advance(60)
    event.set()
    assert await waiting is True


async def test_failures_and_health_of_a_child_count_for_its_parent_and_its_end_ends_its_own_tasks_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, kept, ended = FakeClock(), Work(0), Work(1)
    async with supervisor(clock) as tasks:
        tasks.start(kept.run, name="worker")
        child = tasks.child()
        child.start(ended.run, name="worker", restart=backoff(clock), subject="pod web")
        await clock.advance(0)
        assert (tasks.failures, tasks.healthy("worker")) == ({"worker": 1}, False)
        await child.stop()
        assert (tasks.healthy("worker"), kept.cancelled) == (True, False)
    assert kept.cancelled
    assert [record.getMessage() for record in caplog.records] == ["worker: pod web failed (ValueError); retrying"]
