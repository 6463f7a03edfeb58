"""A pause of the cyclic collector while many objects are made at once, none of which can be garbage yet."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No collection within. For synchronous work alone: whoever awaits within pauses it for others.

    What is read from a page refers to nothing but itself, so there are no cycles to find, but each few hundred of its parts would start a
    search: a half of what it takes to read a page. If two threads read at once, the first to end ends the pause for both, which costs the
    other time, and nothing else. A collector that was off stays off.
    """
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()
