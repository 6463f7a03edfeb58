"""Threads for plain reconcilers: as many as there are calls at once, used again, and none that keeps the program alive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from kubeloop.controller.threads import ThreadExecutor

_ABOUT: ContextVar[str] = ContextVar("about", default="")


@pytest.fixture
def threads() -> Iterator[ThreadExecutor]:
    made = ThreadExecutor("test")
    yield made
    made.close()


async def test_a_call_runs_in_a_thread_that_ends_with_the_program_and_sees_the_callers_context(threads: ThreadExecutor) -> None:
    _ABOUT.set("shop/web")
    name, daemon, about = await threads.call(
        lambda _: (threading.current_thread().name, threading.current_thread().daemon, _ABOUT.get()), 1
    )
    assert (name, daemon, about) == ("test-1", True, "shop/web")


async def test_a_thread_that_is_idle_is_used_again(threads: ThreadExecutor) -> None:
    names = [await threads.call(lambda _: threading.current_thread().name, 1) for _ in range(5)]
    assert names == ["test-1"] * 5


async def test_concurrent_calls_have_separate_threads(threads: ThreadExecutor) -> None:
    together = threading.Barrier(3, timeout=10)
    await asyncio.gather(*(threads.call(lambda _: together.wait(), 1) for _ in range(3)))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(ValueError("x"), ValueError, id="an error is the caller's"),
        pytest.param(SystemExit(1), SystemExit, id="an exception that ends programs, too"),
        pytest.param(StopIteration(), RuntimeError, id="an exception that a future cannot hold is wrapped"),
        pytest.param(GeneratorExit(), RuntimeError, id="an exception that would close the waiting coroutines, too"),
    ],
)
async def test_what_a_call_raises(threads: ThreadExecutor, error: BaseException, expected: type[BaseException]) -> None:
    def fail(_: int) -> None:
        raise error

    future = threads.call(fail, 1)
    await asyncio.wait([future])
    assert isinstance(future.exception(), expected)


async def test_a_call_without_a_waiter_does_no_harm(threads: ThreadExecutor) -> None:
    gate = threading.Event()
    future = threads.call(lambda _: gate.wait(10), 1)
    future.cancel()
    other = threads.call(lambda argument: argument, "another thread")
    assert await other == "another thread"
    gate.set()


async def test_after_the_end_threads_are_gone() -> None:
    threads = ThreadExecutor("ending")
    thread = await threads.call(lambda _: threading.current_thread(), 1)
    threads.close()
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
