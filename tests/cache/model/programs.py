"""Programs of steps: the tried steps, and how often each."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.cache.model.world import Step

#: Name and weight. Writes are separate: they come between all others.
NETWORK = {
    "cut": 4,
    "reset": 3,
    "half close": 2,
    "cut in mid-frame": 6,
    "lose": 2,
    "freeze": 2,
    "thaw": 3,
    "refuse": 2,
    "accept": 3,
    "clock jumps": 3,
}
SERVER = {"expire streams": 3, "expire lists": 3, "compact": 3, "repeat bookmarks": 2, "crash": 2, "crash and forget": 1}
HANDLERS = {"handler": 4, "remove handler": 4}
ALWAYS = {"time passes": 6, "restart": 3}


def endless(rng: random.Random, names: dict[str, int], most_writes: int = 100) -> Iterator[Step]:
    """Writes and, now and then, something else."""
    choices, weights = list(names), list(names.values())
    while True:
        yield Step("write", rng.randrange(most_writes), rng.getrandbits(30))
        if rng.random() < 0.5:
            yield Step(rng.choices(choices, weights)[0], rng.randrange(100), rng.getrandbits(30))
