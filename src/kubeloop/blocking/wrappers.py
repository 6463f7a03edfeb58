"""Converts results of the asynchronous interface for blocking callers, and their arguments for it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import weakref
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any

from kubeloop.blocking.call import RunningCall, resolve_future
from kubeloop.blocking.contexts import BlockingContext
from kubeloop.blocking.iterators import BlockingIterator
from kubeloop.blocking.loop import LoopThread
from kubeloop.blocking.rules import HANDLER, is_async


def wrap(value: Any, loop: LoopThread, keep: object = None) -> Any:
    """Return a result for a blocking caller: an object to await becomes a facade, an iterator or a context manager.

    Other results are returned unchanged. ``keep`` is an object that must stay open as long as the result is in use.
    """
    kind = type(value)
    if kind in (list, tuple):
        # All items of a list have the same type. An object list has another type than these two.
        if not any(map(_must_wrap, value if kind is tuple else value[:1])):
            return value
        return kind(wrap(one, loop, keep) for one in value)
    if is_async(kind):
        from kubeloop.blocking.facade import facade_of

        return facade_of(kind)._adopt(value, loop, keep)
    if hasattr(kind, "__anext__"):
        return BlockingIterator(loop, value, keep)
    if hasattr(kind, "__aenter__"):
        return BlockingContext(loop, value, keep)
    return value


def _must_wrap(value: object) -> bool:
    kind = type(value)
    return is_async(kind) or hasattr(kind, "__anext__") or hasattr(kind, "__aenter__")


def unwrap(value: Any) -> Any:
    """Return an argument in the form that the asynchronous interface accepts."""
    from kubeloop.blocking.facade import Facade

    if isinstance(value, Facade):
        return value._wrapped
    if type(value) in (list, tuple) and any(isinstance(one, Facade) for one in value):
        return type(value)(map(unwrap, value))
    return value


class Parameters:
    """The parameters of a function that accept async functions; ``adapt`` converts the caller's ordinary functions."""

    def __init__(self, function: Callable[..., Any]) -> None:
        annotations = {name: str(said) for name, said in inspect.get_annotations(function).items() if name != "return"}
        self._handlers = {name for name, said in annotations.items() if said.startswith(f"{HANDLER}[")}
        self._awaited = {name for name, said in annotations.items() if "Awaitable[" in said}
        self._names = list(inspect.signature(function).parameters) if self._handlers or self._awaited else []

    def adapt(self, call: RunningCall[Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Convert the arguments of a call; ``args`` excludes the object itself."""
        if not self._names:
            return list(map(unwrap, args)), {name: unwrap(value) for name, value in kwargs.items()}
        names = self._names[1:] if self._names[0] == "self" else self._names
        given = [self._adapted(name, value, call) for name, value in zip(names, args, strict=False)]
        given += map(unwrap, args[len(names) :])
        return given, {name: self._adapted(name, value, call) for name, value in kwargs.items()}

    def _adapted(self, name: str, value: Any, call: RunningCall[Any] | None) -> Any:
        if not callable(value) or inspect.iscoroutinefunction(value):
            return unwrap(value)
        if name in self._handlers:
            return in_own_thread(value)
        if name in self._awaited and call is not None:
            return call.in_waiting_thread(value)
        return value


def in_own_thread(function: Callable[..., object]) -> Callable[..., Coroutine[Any, Any, object]]:
    """Return an async function that runs ``function`` in a separate thread, which ends when the result is collected.

    The loop's executor is unsuitable: the interpreter would wait at its exit for a handler that does not return.
    """
    jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
    started: list[threading.Thread] = []

    async def ask(*args: object) -> object:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[object] = loop.create_future()
        context = contextvars.copy_context()

        def job() -> None:
            try:
                value = context.run(function, *args)
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                fault = error if isinstance(error, Exception) else RuntimeError(f"the handler ended with {type(error).__name__}")
                resolve_future(loop, answer, None, fault)
            else:
                resolve_future(loop, answer, value)

        if not started:
            started.append(threading.Thread(target=_work, args=(jobs,), name="kubeloop.blocking handler", daemon=True))
            started[0].start()
        jobs.put(job)
        return await answer

    weakref.finalize(ask, jobs.put, None).atexit = False
    return ask


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job
