"""One line of a soak's progress: in place on a terminal, else every ten seconds."""

from __future__ import annotations

import sys
import time

from tests.cache.model.world import World
from tests.soak.memory import Memory

_EVERY = 10.0


class Progress:
    def __init__(self, total: int) -> None:
        self._wanted = total
        self._began = time.monotonic()
        self._shown = 0.0
        self._terminal = sys.stdout.isatty()

    def show(self, world: World, memory: Memory) -> None:
        now = time.monotonic()
        if self._terminal:
            print(f"\r{self._line(world, memory)}\x1b[K", end="", flush=True)
        elif now - self._shown >= _EVERY:
            self._shown = now
            print(self._line(world, memory), flush=True)

    def end(self, world: World, memory: Memory) -> None:
        """The whole account."""
        print(("\n" if self._terminal else "") + self._line(world, memory))
        print("faults: " + ", ".join(f"{name} {count:,}" for name, count in world.faults.most_common()))
        print("everything asked for: " + _counts(world.lists))
        print("watches opened again: " + _counts(world.restarts))
        print(f"resident memory: {memory.first:.0f} MiB at the start, {memory.settled:.0f} after a fifth, {memory.now:.0f} at the end")

    def _line(self, world: World, memory: Memory) -> str:
        seconds = time.monotonic() - self._began
        done = f"{world.events:,} of {self._wanted:,} events, {world.writes:,} writes, {world.faults.total():,} faults"
        again = f"{world.lists.total():,} lists, {world.restarts.total():,} watches again"
        return f"{seconds:5.0f} s  {done}, {again}, {memory.now:.0f} MiB"


def _counts(counter: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counter.items(), key=lambda item: -item[1])) or "none"
