"""``lister.stream``: one moment, in turns."""

from __future__ import annotations

import asyncio
import time

import pytest

from kubeloop.cache.lister.lister import SLICE, STRIDE
from tests.cache.own_world import World, document


def world_of(count: int) -> World:
    world = World()
    world.listed([document(f"o{number}", f"u{number}", "1", x="1") for number in range(count)], "9")
    return world


class Turns:
    """Counts how often the loop comes round."""

    def __init__(self) -> None:
        self.count = 0
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def work(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


async def test_the_loop_gets_its_turn_after_each_5_ms_of_the_callers_own_work_too() -> None:
    turns = Turns()
    seen: list[int] = []
    async for _ in world_of(4).lister.stream():
        seen.append(turns.count)
        work(SLICE)
    assert seen == [0, 1, 2, 3], "one turn between two objects, no more"
    await turns.end()


async def test_the_loop_gets_its_turn_while_nothing_matches_either() -> None:
    def slow(head: object) -> bool:
        work(SLICE / STRIDE)
        return False

    turns = Turns()
    assert [each async for each in world_of(4 * STRIDE).lister.stream(field_selector=slow)] == []
    assert turns.count >= 3
    await turns.end()


async def test_all_objects_are_of_the_moment_at_which_it_began() -> None:
    world = world_of(5)
    world.wrote(document("o3", "u3", "10", x="2"))
    found = []
    async for obj in world.lister.stream():
        found.append((obj.metadata.name, obj.metadata.resource_version))
        if len(found) == 1:
            world.changed(document("o3", "u3", "10", x="2"))
            world.listed([document("new", "u9", "19")], "20")
            world.wrote(document("newer", "u10", "21"), "create")
    assert sorted(found) == [("o0", "1"), ("o1", "1"), ("o2", "1"), ("o3", "10"), ("o4", "1")]
    assert sorted(head.name for head in world.lister.heads()) == ["new", "newer"]


async def test_it_may_be_left_early() -> None:
    world = world_of(3)
    async for _ in world.lister.stream():
        break
    assert len(world.lister) == 3


async def test_nothing_is_read_before_the_first_object_is_requested() -> None:
    world = world_of(1)
    stream = world.lister.stream()
    world.removed(document("o0", "u0", "10"))
    with pytest.raises(StopAsyncIteration):
        await anext(aiter(stream))
