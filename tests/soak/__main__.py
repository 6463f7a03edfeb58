"""A long run of the model-based test: random writes and faults, with progress, a verdict, and exit status 1 if bad.

python -m tests.soak --events 1000000 [--minutes 10] [--seed 1] [--real KUBECONFIG]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from kubeloop.testing import TlsTestServer
from tests.cache.model.hurried import HurriedClock
from tests.cache.model.programs import ALWAYS, HANDLERS, NETWORK, SERVER, endless
from tests.cache.model.world import EmbeddedSide, ServerSide, World, leaks
from tests.soak.memory import Memory
from tests.soak.progress import Progress
from tests.soak.real import real_side

#: Steps between two moments at which all faults end and everything is compared.
_STEPS = 60


@dataclass(frozen=True)
class Settings:
    events: int
    minutes: float
    seed: int
    real: Path | None


def arguments() -> Settings:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="informers under random faults, checked again and again")
    parser.add_argument("--events", type=int, default=1_000_000, help="end when handlers got so many (default: a million)")
    parser.add_argument("--minutes", type=float, default=0.0, help="end after so long at the latest (default: no limit)")
    parser.add_argument("--seed", type=int, default=1, help="of writes and faults (default: 1)")
    parser.add_argument("--real", type=Path, metavar="KUBECONFIG", help="a real server instead of the embedded one; uses namespaces soak-*")
    found = parser.parse_args()
    return Settings(found.events, found.minutes, found.seed, found.real)


@contextlib.asynccontextmanager
async def server(settings: Settings, clock: HurriedClock) -> AsyncIterator[tuple[ServerSide, tuple[str, ...]]]:
    """The side of the server, and the namespaces to write in."""
    if settings.real is not None:
        async with real_side(settings.real) as found:
            yield found
    else:
        async with TlsTestServer(clock=clock, history_revisions=2000) as embedded:
            yield EmbeddedSide(embedded, clock), ("a", "b", "c")


async def soak(settings: Settings) -> list[str]:
    """Return the errors; the first one ends the run."""
    # A real server does not hurry, so time may not run so fast that its answers seem to fail to come.
    clock, rng, tasks = HurriedClock(10.0 if settings.real else 100.0), random.Random(settings.seed), asyncio.all_tasks()
    progress, memory = Progress(settings.events), Memory()
    deadline = time.monotonic() + settings.minutes * 60 if settings.minutes else float("inf")
    async with server(settings, clock) as (side, namespaces):
        async with World(side, clock, settings.seed, namespaces=namespaces, names=40) as world:
            network = {name: weight for name, weight in NETWORK.items() if name != "clock jumps" or settings.real is None}
            names = network | HANDLERS | ALWAYS | {name: weight for name, weight in SERVER.items() if name in side.faults}
            steps = endless(rng, names, most_writes=100 if settings.real is None else 40)
            wrong: list[str] = []
            while not wrong and world.events < settings.events and time.monotonic() < deadline:
                for _ in range(_STEPS):
                    await world.do(next(steps))
                wrong = await world.settle()
                memory.look(world.events / settings.events)
                progress.show(world, memory)
        progress.end(world, memory)
    return wrong + await leaks(tasks, clock, world) + memory.verdict()


def main() -> int:
    settings = arguments()
    logging.disable(logging.CRITICAL)  # thousands of faults are reported, as they must be; here they are counted
    wrong = asyncio.run(soak(settings))
    for line in wrong[:50]:
        print(f"VIOLATION {line}")
    print(
        "verdict: " + (f"{len(wrong)} violations (seed {settings.seed})" if wrong else "the cache was right each time, and nothing leaked")
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
