"""One call: an interrupted caller returns at any moment, and the call is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest

from kubeloop.blocking.call import RunningCall
from kubeloop.blocking.contexts import BlockingContext
from kubeloop.blocking.iterators import BlockingIterator
from kubeloop.blocking.loop import shared_loop

Jobs = SimpleQueue[Callable[[], None] | None]


class Interrupting(Jobs):
    """The thread that waits is interrupted: before it sees the next job, or when it has just taken it."""

    def __init__(self, *, late: bool) -> None:
        self.late = late
        self.done = False

    def get(self, block: bool = True, timeout: float | None = None) -> Callable[[], None] | None:
        if self.done:
            return super().get(block, timeout)
        self.done = True
        if self.late:
            super().get(block, timeout)
        raise KeyboardInterrupt


@pytest.mark.parametrize("late", [pytest.param(False, id="while it runs"), pytest.param(True, id="in the moment in which it has ended")])
def test_an_interrupt_ends_a_call(late: bool) -> None:
    ended = Event()

    async def work(_: RunningCall[None]) -> None:
        try:
            if not late:
                await asyncio.Event().wait()
        finally:
            ended.set()

    loop = shared_loop()
    call = RunningCall(loop._loop, work)
    call._jobs = Interrupting(late=late)
    with pytest.raises(KeyboardInterrupt):
        call.wait()
    if late:
        assert ended.wait(30)


def test_a_call_that_could_not_begin_says_why() -> None:
    def work(_: RunningCall[Any]) -> Any:
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        shared_loop().call(work)


def test_a_block_is_entered_and_left_in_one_task_and_an_error_of_its_body_is_seen_there() -> None:
    seen: list[object] = []

    @asynccontextmanager
    async def manager() -> AsyncIterator[int]:
        task = asyncio.current_task()
        try:
            async with asyncio.timeout(60), asyncio.TaskGroup():
                yield 1
        finally:
            seen.append(asyncio.current_task() is task)

    def body() -> None:
        with BlockingContext[int](shared_loop(), manager()) as one:
            assert one == 1
            raise LookupError("mine")

    with pytest.raises(ExceptionGroup) as caught:
        body()
    assert [str(one) for one in caught.value.exceptions] == ["mine"]
    assert seen == [True]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_block_whose_body_is_interrupted_sees_a_cancellation(stop: type[BaseException]) -> None:
    seen: list[type[BaseException]] = []

    @asynccontextmanager
    async def manager() -> AsyncIterator[None]:
        try:
            yield
        except BaseException as error:
            seen.append(type(error))
            raise

    block: BlockingContext[None] = BlockingContext(shared_loop(), manager())
    with pytest.raises(stop), block:
        raise stop
    assert seen == [asyncio.CancelledError]


def test_a_block_may_swallow_an_error_as_it_does_in_coroutines() -> None:
    @asynccontextmanager
    async def manager() -> AsyncIterator[None]:
        with suppress(LookupError):
            yield

    with BlockingContext[None](shared_loop(), manager()):
        raise LookupError


def test_a_block_is_entered_once() -> None:
    @asynccontextmanager
    async def manager() -> AsyncIterator[None]:
        yield

    block: BlockingContext[None] = BlockingContext(shared_loop(), manager())
    with block, pytest.raises(RuntimeError, match="this block has been entered already"):
        block.__enter__()


def test_an_iterator_that_is_closed_closes_its_generator_and_ends() -> None:
    closed = Event()

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    with BlockingIterator[int](shared_loop(), numbers()) as found:
        assert next(found) == 1
    assert closed.is_set()
    assert list(found) == []


def test_an_iterator_that_is_dropped_closes_its_generator() -> None:
    closed = Event()

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    for number in BlockingIterator[int](shared_loop(), numbers()):
        assert number == 1
        break
    assert closed.wait(30)
