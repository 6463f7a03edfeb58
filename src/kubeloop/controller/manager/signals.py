"""Signals of a program that runs controllers: the first one stops it gracefully, the second one at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial

from kubeloop.meta.signals import on_signal
from kubeloop.tasks import end_tasks
from kubeloop.transport import logger_with_context

log = logger_with_context("kubeloop.controller.manager")


async def unless_stopped(work: Coroutine[object, object, None], over: asyncio.Event) -> bool:
    """Whether ``work`` was done before ``over`` was set, which cancels it. What it raises is raised."""
    doing, stopped = asyncio.ensure_future(work), asyncio.ensure_future(over.wait())
    try:
        await asyncio.wait((doing, stopped), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
            return True
        return False
    finally:
        await end_tasks(doing, stopped, logger=log)


SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals(stop: Callable[[], None], *, enabled: bool = True) -> Iterator[None]:
    """Within the block the first SIGINT or SIGTERM calls ``stop``; the second ends the process at once, with status 128 + its number.

    The handlers that were there before come back at the end. Outside of the main thread, where Python allows none, nothing changes.
    """
    seen = False

    def received(number: signal.Signals) -> None:
        nonlocal seen
        if seen:
            sys.stderr.write(f"{number.name} again: exit at once\n")
            sys.stderr.flush()
            os._exit(128 + number)
        seen = True
        log.warning("%s: stopping; once more to exit at once", number.name)
        stop()

    undo: list[Callable[[], None]] = []
    try:
        undo.extend(on_signal(number, partial(received, number)) for number in (SIGNALS if enabled else ()))
    except (ValueError, RuntimeError) as error:
        log.debug("signals are not handled here: %s", error)
    try:
        yield
    finally:
        for bring_back in undo:
            bring_back()
