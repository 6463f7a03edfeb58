"""How many requests run at a time, and in which order they wait."""

from __future__ import annotations

import asyncio
import random

import pytest

from kubeloop.meta import TooManyRequests
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from kubeloop.transport.limits import MAX_REQUESTS, MIN_REQUESTS, InFlightLimiter
from tests.faults import FaultServer, Reply


class Crowd:
    """Requests that hold their place until they are let go."""

    def __init__(self, places: InFlightLimiter) -> None:
        self.places = places
        self.inside: dict[int, asyncio.Event] = {}
        self.entered: list[int] = []
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def come(self, number: int) -> None:
        self.tasks[number] = asyncio.create_task(self._stay(number))
        await settle()

    async def leave(self, number: int) -> None:
        self.inside.pop(number).set()
        await self.tasks[number]
        await settle()

    async def give_up(self, number: int) -> None:
        self.tasks[number].cancel()
        await asyncio.wait([self.tasks[number]])
        self.inside.pop(number, None)
        await settle()

    async def _stay(self, number: int) -> None:
        async with self.places:
            self.inside[number] = asyncio.Event()
            self.entered.append(number)
            await self.inside[number].wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_requests_are_served_in_order_and_a_cancelled_one_delays_no_other() -> None:
    crowd = Crowd(InFlightLimiter(2, 1))
    for number in range(6):
        await crowd.come(number)
    assert (crowd.entered, crowd.places.waiting) == ([0, 1], 4)
    await crowd.give_up(3)
    await crowd.leave(0)
    await crowd.give_up(1)
    assert crowd.entered == [0, 1, 2, 4]
    await crowd.leave(2)
    await crowd.leave(4)
    await crowd.leave(5)
    assert crowd.places.waiting == 0


def test_a_refusal_halves_the_window_down_to_a_floor_and_answers_open_it_again_slowly() -> None:
    places = InFlightLimiter(100, 10)
    windows = []
    for _ in range(5):
        places.refused()
        windows.append(places.window)
    assert windows == [50, 25, 12, 10, 10]
    for _ in range(11):
        places.answered()
    assert places.window == 11
    for _ in range(10_000):
        places.answered()
    assert places.window == 100


async def test_a_place_that_was_given_while_its_taker_was_cancelled_goes_to_the_next() -> None:
    crowd = Crowd(InFlightLimiter(1, 1))
    for number in range(3):
        await crowd.come(number)
    crowd.inside.pop(0).set()
    await crowd.tasks[0]  # the place is 1's now, who has not run yet
    await crowd.give_up(1)
    assert crowd.entered in ([0, 2], [0, 1, 2])
    await crowd.leave(2)


async def test_who_gives_up_in_the_turn_in_which_another_leaves_is_passed_over() -> None:
    crowd = Crowd(InFlightLimiter(1, 1))
    for number in range(3):
        await crowd.come(number)
    crowd.inside.pop(0).set()
    crowd.tasks[1].cancel()  # 0 leaves, and finds that 1 does not wait any more, before 1 itself has run
    await asyncio.wait((crowd.tasks[1],))
    assert crowd.tasks[1].cancelled()
    await settle()
    assert crowd.entered == [0, 2]
    await crowd.leave(2)


@pytest.mark.parametrize("seed", range(5))
async def test_requests_never_exceed_the_window_and_each_is_served(seed: int) -> None:
    chosen = random.Random(seed)
    crowd = Crowd(InFlightLimiter(5, 1))
    for number in range(200):
        await crowd.come(number)
        while crowd.inside and chosen.random() < 0.55:
            await (crowd.leave if chosen.random() < 0.8 else crowd.give_up)(chosen.choice(list(crowd.inside)))
        waiting = [one for one, task in crowd.tasks.items() if not task.done() and one not in crowd.inside]
        if waiting and chosen.random() < 0.2:
            await crowd.give_up(chosen.choice(waiting))
        assert len(crowd.inside) <= 5
    while crowd.inside:
        await crowd.leave(next(iter(crowd.inside)))
    assert all(task.done() for task in crowd.tasks.values())


async def test_429_makes_a_transport_ask_less_at_a_time_and_answers_more_again() -> None:
    async with FaultServer(Reply(429), Reply(429), Reply()) as server, Transport(server.config(), clock=FakeClock()) as transport:
        for _ in range(2):
            with pytest.raises(TooManyRequests):
                await transport.request("GET", "/x")
        assert transport.places.window == MAX_REQUESTS // 4
        await transport.request("GET", "/x")
        assert MAX_REQUESTS // 4 <= transport.places.window < MAX_REQUESTS
    assert MIN_REQUESTS <= 10
