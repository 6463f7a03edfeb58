"""Whatever reconciles do (succeed, fail, hang, give up, ask to come back), no key is worked on twice at a time, and none is forgotten."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.controller.result import Result, TerminalError
from kubeloop.meta import KubeloopError, ObjectKey
from tests.controller.runner.bench import Bench

KEYS = [ObjectKey("test", "shop", name) for name in "abc"]
OUTCOMES = ["success", "error", "bug", "exit", "terminal", "requeue", "requeue after", "hang", "slow"]
ACTIONS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(KEYS), st.sampled_from([-100, 0, 5])),
    st.tuples(st.just("pass"), st.just(KEYS[0]), st.sampled_from([0, 1, 4, 40])),
    st.tuples(st.sampled_from(["let go", "pause", "resume"]), st.just(KEYS[0]), st.just(0)),
)


class World:
    """Reconciles with scripted outcomes; when the script is used up all succeed."""

    def __init__(self, script: list[str]) -> None:
        self.script = script
        self.running: set[ObjectKey] = set()
        self.steps = 0
        self.begun: dict[ObjectKey, int] = defaultdict(int)
        self.added: dict[ObjectKey, int] = {}
        self.free = asyncio.Event()

    def step(self) -> int:
        self.steps += 1
        return self.steps

    async def reconcile(self, key: ObjectKey) -> Result | None:
        assert key not in self.running, f"{key} is worked on twice at a time"
        self.begun[key] = self.step()
        self.running.add(key)
        try:
            return await self._outcome(self.script.pop(0) if self.script else "success")
        finally:
            self.running.discard(key)

    async def _outcome(self, outcome: str) -> Result | None:
        if outcome == "hang":
            while not self.free.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await self.free.wait()
        elif outcome == "slow":
            await self.free.wait()
        elif outcome == "terminal":
            raise TerminalError("never")
        elif outcome == "error":
            raise KubeloopError("not yet")
        elif outcome == "bug":
            raise ZeroDivisionError
        elif outcome == "exit":
            raise SystemExit(1)
        elif outcome == "requeue":
            return Result(requeue=True)
        elif outcome == "requeue after":
            return Result(requeue_after=3, priority=1)
        return None


@settings(max_examples=40)
@given(
    script=st.lists(st.sampled_from(OUTCOMES), max_size=12),
    actions=st.lists(ACTIONS, max_size=20),
    count=st.integers(1, 3),
)
def test_no_key_is_worked_on_twice_at_a_time_and_each_is_reconciled_after_its_last_addition(
    script: list[str], actions: list[tuple[str, ObjectKey, int]], count: int
) -> None:
    async def play() -> None:
        world = World(list(script))
        async with Bench(world.reconcile, count=count, timeout=2) as bench:
            for action, key, number in actions:
                if action == "add":
                    world.added[key] = world.step()
                    bench.queue.add(key, priority=number)
                elif action == "pass":
                    await bench.clock.advance(number)
                elif action == "pause":
                    bench.workers.gate.pause()
                elif action == "resume":
                    bench.workers.gate.resume()
                else:
                    world.free.set()
            bench.workers.gate.resume()
            world.free.set()
            await bench.clock.advance(2000)
            assert all(world.begun[key] > when for key, when in world.added.items())
            counts, stats = bench.workers.counts, bench.queue.stats
            assert (counts.active, counts.hanging, stats.processing, stats.waiting, stats.delayed) == (0, 0, 0, 0, 0)
            assert bench.workers._running <= count + 12
        assert bench.workers._running == 0

    asyncio.run(play())
