"""Events that come alone: a plain handler that is free is called at once; whatever else is the case, its task calls it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kubeloop.api.core.v1 import Pod
from kubeloop.cache import EventType, InformerEvent
from kubeloop.cache.handlers.registration import Callbacks, Registration
from kubeloop.cache.lister.view import CacheView
from kubeloop.cache.store.store import Store
from kubeloop.cache.tasks import Progress
from kubeloop.timing import FakeClock
from kubeloop.transport import log_context, logger_with_context
from tests.cache.heads import head

VIEW: CacheView[Pod] = CacheView(Store(), Pod, "test")
_log = logger_with_context("tests.handlers")


def added(name: str) -> InformerEvent[Pod]:
    return InformerEvent(EventType.ADDED, head(name, 1), None, VIEW)


@asynccontextmanager
async def running(handler: Callable[[InformerEvent[Pod]], object], *, coalesce: bool = False) -> AsyncIterator[Registration[Pod]]:
    """A handler with nothing to do, in a task with a log context, as an informer has it."""
    clock = FakeClock()
    calls: Callbacks[Pod] = Callbacks(added=handler, name="one", coalesce=coalesce)
    registration = Registration(calls, clock, Progress(clock), lambda: True, lambda _: None)

    async def run() -> None:
        with log_context(handler="one"):
            await registration.run()

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    try:
        yield registration
    finally:
        registration.remove()
        await task


@pytest.mark.parametrize("coalesce", [False, True], ids=["", "changes that wait would become one"])
async def test_a_plain_handler_that_is_free_is_called_at_once(coalesce: bool) -> None:
    delivered: list[str] = []
    async with running(lambda event: delivered.append(event.head.name), coalesce=coalesce) as registration:
        for name in "ab":
            registration.offer(added(name))
            assert name not in delivered
            registration.deliver(at_once=True)
        assert delivered == ["a", "b"]
        assert (registration.pending, registration.meter.calls, registration.meter.key) == (0, 2, "")


async def test_log_records_of_the_call_carry_the_handler_and_the_key_and_later_ones_do_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running(lambda _: _log.info("within")) as registration:
        registration.offer(added("a"))
        registration.deliver(at_once=True)
        _log.info("after")
    fields = {record.message: getattr(record, "kubeloop", None) for record in caplog.records}
    assert fields["within"] == {"handler": "one", "key": "ns/a"}
    assert fields["after"] == {}


@pytest.mark.parametrize("error", [ValueError("boom"), asyncio.CancelledError()], ids=["an error", "an unrelated cancellation"])
async def test_a_handler_that_raises_is_named_and_hears_of_the_next_event(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    delivered: list[str] = []

    def fragile(event: InformerEvent[Pod]) -> None:
        delivered.append(event.head.name)
        if event.head.name == "a":
            raise error

    async with running(fragile) as registration:
        for name in "ab":
            registration.offer(added(name))
            registration.deliver(at_once=True)
        assert delivered == ["a", "b"]
        assert registration.meter.failures == 1
    assert "handler one failed on ADDED ns/a" in caplog.text


async def test_an_async_handler_is_called_in_its_task() -> None:
    tasks: list[asyncio.Task[object] | None] = []

    async def handler(event: InformerEvent[Pod]) -> None:
        tasks.append(asyncio.current_task())

    async with running(handler) as registration:
        registration.offer(added("a"))
        registration.deliver(at_once=True)
        assert tasks == []
        await registration.wait_drained()
        assert len(tasks) == 1
        assert tasks[0] is not asyncio.current_task()


async def test_a_plain_handler_that_leaves_something_to_be_awaited_is_awaited_before_the_next_event() -> None:
    steps: list[str] = []
    go = asyncio.Event()

    async def finish(name: str) -> None:
        await go.wait()
        steps.append(f"{name} ends")

    def handler(event: InformerEvent[Pod]) -> Awaitable[None]:
        steps.append(f"{event.head.name} begins")
        return finish(event.head.name)

    async with running(handler) as registration:
        for name in "abc":
            registration.offer(added(name))
            registration.deliver(at_once=True)
        assert steps == ["a begins"]
        go.set()
        await registration.wait_drained()
        assert steps == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]
        assert registration.meter.calls == 3


async def test_what_a_handler_has_begun_is_left_in_peace_when_its_informer_ends() -> None:
    async def never() -> None:
        raise AssertionError("not awaited")

    clock = FakeClock()
    calls: Callbacks[Pod] = Callbacks(added=lambda _: never(), name="one")
    registration = Registration(calls, clock, Progress(clock), lambda: True, lambda _: None)
    task = asyncio.create_task(registration.run())
    await asyncio.sleep(0)
    registration.offer(added("a"))
    registration.deliver(at_once=True)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not registration.active


@pytest.mark.parametrize("first", ["several events", "an event that is not delivered at once", "the end of what was there"])
async def test_whatever_else_waits_comes_first_and_in_order(first: str) -> None:
    delivered: list[str] = []
    async with running(lambda event: delivered.append(event.head.name)) as registration:
        if first == "the end of what was there":
            registration.initial_end()
        else:
            registration.offer(added("a"))
            if first == "several events":
                registration.offer(added("b"))
            registration.deliver(at_once=first == "several events")
        registration.offer(added("z"))
        registration.deliver(at_once=True)
        assert delivered == []
        await registration.wait_drained()
        assert delivered[-1] == "z"
        assert delivered == sorted(delivered)
        assert registration.synced is (first == "the end of what was there")


async def test_a_handler_may_remove_itself() -> None:
    delivered: list[str] = []

    def once(event: InformerEvent[Pod]) -> None:
        delivered.append(event.head.name)
        registration.remove()

    async with running(once) as registration:
        for name in "ab":
            registration.offer(added(name))
            registration.deliver(at_once=True)
        await registration.wait_removed()
        assert delivered == ["a"]
