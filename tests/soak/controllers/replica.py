"""One replica, a separate process: ``python -m tests.soak.controllers.replica``; the soak starts and kills it.

It ends as an operator does: on SIGTERM in order, on the loss of its lease with a special status.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from dataclasses import dataclass
from pathlib import Path

from kubeloop.cache import InformerFactory, WatchPolicy
from kubeloop.client import Client
from kubeloop.config import load_config
from kubeloop.controller import Manager
from kubeloop.controller.election import LeaseConfig, LeaseLost
from kubeloop.controller.sharding import ShardConfig
from kubeloop.timing import Backoff
from kubeloop.transport import Transport
from tests.soak.controllers.notes import Notes
from tests.soak.controllers.tidy import Self, controllers
from tests.soak.memory import resident

#: Seconds between two looks at the memory.
_LOOK = 5.0
#: The lease of the election, and the group of the shards, in namespace default.
NAME = "soak"
#: The exit status of a replica that could not renew its lease.
LOST = 3


@dataclass(frozen=True)
class Settings:
    kubeconfig: Path
    notes: Path
    identity: str
    sharded: bool
    controllers: int
    times: tuple[float, float, float]
    longest_pause: float


def arguments() -> Settings:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.controllers.replica")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--notes", type=Path, required=True)
    parser.add_argument("--identity", required=True)
    parser.add_argument("--sharded", action="store_true")
    parser.add_argument("--controllers", type=int, required=True)
    parser.add_argument(
        "--times", type=float, nargs=3, required=True, metavar="SECONDS", help="lease duration, renew deadline, retry period"
    )
    parser.add_argument("--longest-pause", type=float, required=True, help="seconds between two tries of an informer at most")
    found = parser.parse_args()
    lease, renew, retry = found.times
    times = (lease, renew, retry)
    return Settings(found.kubeconfig, found.notes, found.identity, found.sharded, found.controllers, times, found.longest_pause)


async def live(settings: Settings) -> None:
    lease, renew, retry = settings.times
    election = sharding = None
    if settings.sharded:
        sharding = ShardConfig(NAME, "default", settings.identity, lease, renew, retry)
    else:
        election = LeaseConfig(NAME, "default", settings.identity, lease, renew, retry)
    with Notes(settings.notes) as notes:
        async with Client(Transport(load_config(settings.kubeconfig), user_agent=settings.identity)) as client:
            who = Self(settings.identity, lambda: manager.elector.transitions if manager.elector is not None else 0, notes)
            policy = WatchPolicy(backoff=lambda: Backoff(initial=min(0.8, settings.longest_pause), cap=settings.longest_pause))
            async with InformerFactory(client, policy=policy) as informers:
                manager = Manager(
                    client, controllers(who, settings.controllers), informers=informers, leader_election=election, sharding=sharding
                )
                looking = asyncio.create_task(_look(notes))
                try:
                    await manager.run()
                finally:
                    looking.cancel()
                    await asyncio.wait((looking,))


async def _look(notes: Notes) -> None:
    while True:
        notes.memory(resident())
        await asyncio.sleep(_LOOK)


def main() -> int:
    settings = arguments()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    try:
        asyncio.run(live(settings))
    except LeaseLost as error:
        print(error, file=sys.stderr)
        return LOST
    return 0


if __name__ == "__main__":
    sys.exit(main())
