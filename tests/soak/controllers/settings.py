"""What a run is about, and the command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from tests.soak.controllers.kinds import KINDS

#: Seconds from which on a run says how memory grows: the last replica must have worked for more than its first minute.
_LONG = 170.0


@dataclass(frozen=True)
class Settings:
    """``objects``, ``rate`` (changes a second) and ``seconds`` are those of each controller. ``deaths``: how many replicas go.
    ``every``: seconds between faults. ``times``: lease duration, renew deadline and retry period."""

    objects: int = 10_000
    rate: float = 50.0
    seconds: float = 600.0
    controllers: int = 2
    replicas: int = 2
    sharded: bool = False
    deaths: int = 5
    every: float = 4.0
    seed: int = 1
    times: tuple[float, float, float] = (8.0, 5.0, 1.0)
    #: Seconds between two tries of an informer at most. With the 30 s of a program, caches would hear nothing most of the time: faults come
    #: faster than its pauses are forgotten.
    longest_pause: float = 5.0
    #: Whether the memory at the end is judged: a short run has no first minute to compare with.
    memory: bool = True

    @property
    def changes(self) -> int:
        """Of all controllers together."""
        return max(1, int(self.rate * self.seconds * self.controllers))

    @property
    def variant(self) -> str:
        return "shards" if self.sharded else "leader election"


def arguments() -> list[Settings]:
    """One for each requested variant."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.controllers",
        description="controllers in several replicas under faults, kills and restarts, checked by the server's history",
    )
    parser.add_argument("--variant", choices=("election", "shards", "both"), default="both", help="default: both, one after the other")
    parser.add_argument("--objects", type=int, default=10_000, help="of each controller (default: 10000)")
    parser.add_argument("--rate", type=float, default=50.0, help="changes a second, of each controller's objects (default: 50)")
    parser.add_argument("--minutes", type=float, default=10.0, help="of changes, for each variant (default: 10)")
    parser.add_argument("--seconds", type=float, help="instead of --minutes")
    parser.add_argument("--controllers", type=int, choices=range(1, len(KINDS) + 1), default=2, help="each with its own kind (default: 2)")
    parser.add_argument("--replicas", type=int, help="default: 2 with leader election, 3 with shards")
    parser.add_argument(
        "--deaths", type=int, help="replicas that go, every second one by kill -9, and are replaced (default: one in 90 s, 2 at least)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of changes and faults (default: 1)")
    found = parser.parse_args()
    seconds = found.minutes * 60 if found.seconds is None else found.seconds
    deaths = found.deaths if found.deaths is not None else max(2, int(seconds / 90))
    variants = {"election": (False,), "shards": (True,), "both": (False, True)}[found.variant]
    return [
        Settings(
            objects=found.objects,
            rate=found.rate,
            seconds=seconds,
            controllers=found.controllers,
            replicas=found.replicas or (3 if sharded else 2),
            sharded=sharded,
            deaths=deaths,
            seed=found.seed,
            memory=seconds >= _LONG,
        )
        for sharded in variants
    ]
