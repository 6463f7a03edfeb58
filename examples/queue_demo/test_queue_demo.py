"""The queue demo does what its README shows, in no time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from examples.queue_demo.queue_demo import SENTENCE, demo
from kubeloop.timing import FakeClock

HERE = Path(__file__).parent


async def test_after_three_seconds_the_words_come_in_their_order_and_the_program_ends() -> None:
    clock, words = FakeClock(), list[str]()
    running = asyncio.create_task(demo(clock, words.append))
    await clock.advance(2.9)
    assert words == []
    await clock.advance(0.1)
    assert words == ["this", "is", "a", "complete", "sentence"]
    await asyncio.wait_for(running, 1)


def test_the_readme_shows_the_output() -> None:
    shown = "".join(f"    {word}\n" for word in SENTENCE.split())
    assert shown in (HERE / "README.md").read_text()
