"""An event loop in a separate thread, which all blocking objects of a process share. It starts with the first object and ends with the
interpreter. After a fork the child starts another one; objects from before the fork belong to the parent.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TypeVar

from kubeloop.blocking.call import RunningCall, Work
from kubeloop.meta.errors import KubeloopError
from kubeloop.tasks import end_tasks

_LOG = logging.getLogger("kubeloop.blocking")

T = TypeVar("T")

#: Seconds that the end of the interpreter waits for connections to close.
_PATIENCE = 5.0


class LoopThread:
    """Runs coroutines for threads that wait. ``shared_loop`` creates it.

    Guarantees
        Any number of threads may call at a time. An interrupt (Ctrl-C) of the caller cancels the work and waits until it has cleaned up; a
        second interrupt does not wait.
        When the interpreter exits, open resources are closed, in at most 5 s.

    Raises
        RuntimeError: the caller is the loop's own thread, which would wait for itself forever; after a fork; after the end.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._ending = self._ended = False
        self._loop = asyncio.new_event_loop()
        self._closers: set[weakref.finalize[[Callable[[], Awaitable[object]]], object]] = set()
        self._thread = threading.Thread(target=self._run, name="kubeloop.blocking", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def call(self, work: Work[T], context: Context | None = None) -> T:
        """Run a coroutine, wait for its end, and return its result or raise its error.

        ``context`` has the coroutine's context variables; None is a copy of the caller's.
        """
        __tracebackhide__ = True
        self.check()
        call = RunningCall(self._loop, work, context)
        error = call.wait()
        if error is not None:
            try:
                raise error
            finally:
                del error, call
        return call.value

    def post(self, job: Callable[[], object]) -> None:
        """Schedule a function in the loop's thread without waiting. Does nothing if the loop has ended."""
        if self._pid == os.getpid() and not self._ended:
            with contextlib.suppress(RuntimeError):  # it ended in this moment
                self._loop.call_soon_threadsafe(job)

    def close_with(self, owner: object, close: Callable[[], Awaitable[object]]) -> None:
        """Call ``close`` when ``owner`` is collected, or at the end. ``close`` must not refer to ``owner``."""
        self._closers = {one for one in self._closers if one.alive}
        closer = weakref.finalize(owner, self._close_later, close)
        closer.atexit = False
        self._closers.add(closer)

    def check(self) -> None:
        """Raise RuntimeError after a fork, in the loop's own thread, or after the end."""
        if self._pid != os.getpid():
            raise RuntimeError(
                f"made in process {self._pid}, before a fork, and its connections belong to that process: make a new client in this one"
            )
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "a blocking call from the thread of kubeloop's own event loop would deadlock: predicates, mutate and "
                "progress functions run there and must only compute; only event handlers may call"
            )
        if self._ending:
            raise RuntimeError("the interpreter is ending, and kubeloop.blocking has ended with it")

    def stop(self) -> None:
        """Close all resources and end the thread permanently. In a forked child it does nothing."""
        if self._pid != os.getpid() or self._ending:
            return
        self._ending = True
        self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._end()))
        self._thread.join(_PATIENCE * 2)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._ended:
            # A user's function that runs in this thread may raise these exceptions. They end its task, but not the shared loop.
            with contextlib.suppress(KeyboardInterrupt, SystemExit):
                self._loop.run_forever()
        self._loop.close()

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                # First end the open blocks as if they were left, then close the clients that they use.
                others = asyncio.all_tasks() - {asyncio.current_task()}
                await end_tasks(*others, expected=(KubeloopError,), logger=_LOG)
                await self._loop.shutdown_asyncgens()
                for closer in self._closers:
                    found = closer.detach()
                    if found is not None:
                        await _quietly(found[2][0])
        except TimeoutError:
            _LOG.warning("not all connections could be closed within %g s", _PATIENCE)
        finally:
            self._ended = True
            self._loop.stop()

    def _close_later(self, close: Callable[[], Awaitable[object]]) -> None:
        self.post(lambda: self._loop.create_task(_quietly(close)))


async def _quietly(close: Callable[[], Awaitable[object]]) -> None:
    try:
        await close()
    except Exception:  # noqa: BLE001 - logged
        _LOG.debug("closing an unused resource failed", exc_info=True)


class _ProcessLoop:
    """Stores the loop of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop: LoopThread | None = None
        #: The loops of processes before forks. They are never collected, because that would close sockets of the parent.
        self.inherited: list[LoopThread] = []

    def forked(self) -> None:
        self.lock = threading.Lock()  # the thread that held it may not be here
        if self.loop is not None:
            self.inherited.append(self.loop)
            self.loop = None


_shared = _ProcessLoop()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.forked)


def shared_loop() -> LoopThread:
    """Return the loop that all blocking objects of this process share; start it if necessary."""
    with _shared.lock:
        if _shared.loop is None:
            _shared.loop = LoopThread()
        return _shared.loop
