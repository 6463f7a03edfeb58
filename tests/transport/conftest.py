"""Time that a test moves: deadlines of the event loop pass when it says so, on a machine however busy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest


@pytest.fixture
async def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """``later(60)``: what the event loop would do within the next 60 seconds is due now. Call it when nothing else is under way."""
    loop = asyncio.get_running_loop()
    real, skipped = loop.time, 0.0

    def skip(seconds: float) -> None:
        nonlocal skipped
        skipped += seconds

    monkeypatch.setattr(loop, "time", lambda: real() + skipped)
    return skip
