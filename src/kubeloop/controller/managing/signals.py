"""Signals of a program that runs controllers: the first one stops it gracefully, the second one at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kubeloop.transport import logger_with_context

log = logger_with_context(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals(stop: Callable[[], None], *, enabled: bool = True) -> Iterator[None]:
    """Within the block the first SIGINT or SIGTERM calls ``stop``; the second ends the process at once, with status 128 + its number.

    The handlers that were there before come back at the end. Outside of the main thread, where Python allows none, nothing changes.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS} if enabled else {}
    loop = asyncio.get_running_loop()
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

    installed: list[signal.Signals] = []
    try:
        for number in before:
            loop.add_signal_handler(number, received, number)
            installed.append(number)
    except (ValueError, RuntimeError, NotImplementedError) as error:
        log.debug("signals are not handled here: %s", error)
    try:
        yield
    finally:
        for number in installed:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
