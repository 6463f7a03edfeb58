"""Signal handlers of an event loop. They work on Windows too, where event loops do not support them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable


def on_signal(number: signal.Signals, act: Callable[[], object]) -> Callable[[], None]:
    """Call ``act`` in the running loop whenever the signal arrives.

    Args:
        number: Such as ``signal.SIGTERM``.
        act: Called without arguments, in the loop, never in the middle of other code.

    Returns:
        A function that restores the previous handler.

    Raises:
        ValueError, RuntimeError: This is not the main thread, or the signal cannot be handled.
    """
    loop, before = asyncio.get_running_loop(), signal.getsignal(number)
    removes = True
    try:
        loop.add_signal_handler(number, act)
    except NotImplementedError:
        removes = False
        signal.signal(number, lambda _number, _frame: loop.call_soon_threadsafe(act))

    def undo() -> None:
        if removes:
            loop.remove_signal_handler(number)
        signal.signal(number, before)

    return undo
