"""Three candidates: cut off, delayed, disturbed, the server restarts, the time of day jumps. One leader at most, one in the end."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest

from kubeloop.api.coordination.v1 import Lease
from kubeloop.meta import Conflict, NotFound, ServiceUnavailable
from kubeloop.testing import HandlerServer, on
from tests.controller.election.candidates import Candidates, StallingClock, of

IDENTITIES = ("a", "b", "c")


@pytest.mark.parametrize("seed", range(3))
async def test_there_are_never_two_leaders_and_one_in_the_end(
    seed: int, candidates: Candidates, in_process: HandlerServer, clock: StallingClock
) -> None:
    rng = random.Random(seed)
    cut: dict[str, Callable[[], None]] = {}
    running = {identity: candidates.start(identity) for identity in IDENTITIES}
    terms: set[tuple[int, str]] = set()
    for _ in range(120):
        one = rng.choice(IDENTITIES)
        match rng.randrange(9):
            case 0 | 1:
                if one not in cut:
                    cut[one] = in_process.faults.break_answers(matching=of(one))
            case 2:
                for heal in cut.values():
                    heal()
                cut.clear()
            case 3:
                in_process.faults.delay(rng.choice((1.0, 4.0, 6.0)), matching=of(one))
            case 4:
                in_process.faults.refuse(
                    rng.choice((Conflict, ServiceUnavailable)), times=rng.randrange(1, 4), matching=on("update", Lease)
                )
            case 5:
                clock.step_wall(rng.choice((-1, 1)) * rng.choice((1.0, 60.0, 86400.0)))
            case 6:
                await in_process.restart()
            case 7:
                with contextlib.suppress(Conflict, NotFound, ServiceUnavailable):
                    await candidates.touch()
            case 8:
                clock.stall(rng.choice((1.0, 5.0, 12.0)))
        for _ in range(rng.randrange(1, 8)):
            leading = candidates.leading
            assert len(leading) <= 1, leading
            terms.update(
                (found.elector.transitions, found.elector.config.identity) for found in running.values() if found.elector.is_leader
            )
            await clock.advance(0.5)
        for identity, candidate in running.items():
            if candidate.task is not None and candidate.task.done():
                await candidate.ended()
                running[identity] = candidates.start(identity)
    for heal in cut.values():
        heal()
    await clock.advance(60)
    for identity, candidate in running.items():
        if candidate.task is not None and candidate.task.done():
            await candidate.ended()
            running[identity] = candidates.start(identity)
    await clock.advance(30)
    assert len(candidates.leading) == 1
    # A term has one leader: the number can be a fence.
    assert len({term for term, _ in terms}) == len(terms)
