"""Work that a stop ends, in the middle of it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


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
        for task in (doing, stopped):
            task.cancel()
        await asyncio.wait((doing, stopped))
