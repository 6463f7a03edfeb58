"""Read-change-write that meets another client's write."""

from __future__ import annotations

import contextlib

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import DEFAULT_BACKOFF, DEFAULT_RETRY, Client, Retries, retry_on_conflict, retry_on_error
from kubeloop.meta import ApiError, Conflict, NotFound, ObjectMeta, Status
from kubeloop.timing import SystemClock


class Tries:
    """Fails ``failures`` times, then returns the number of the try."""

    def __init__(self, *failures: ApiError) -> None:
        self.failures = list(failures)
        self.count = 0

    async def __call__(self) -> int:
        self.count += 1
        if self.failures:
            raise self.failures.pop(0)
        return self.count


def conflict(message: str = "") -> Conflict:
    return Conflict(Status(reason="Conflict", code=409, message=message))


async def paused(attempt: Tries, retries: Retries = DEFAULT_RETRY) -> list[float]:
    """How long it waited before each further try."""
    clock = Recording()
    with contextlib.suppress(ApiError):
        await retry_on_conflict(attempt, retries=retries, clock=clock)
    return clock.slept


class Recording(SystemClock):
    def __init__(self) -> None:
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_n177_a_conflict_is_tried_again() -> None:
    assert await retry_on_conflict(Tries(conflict(), conflict())) == 3


async def test_n177_after_five_tries_the_last_conflict_is_the_error() -> None:
    tries = Tries(*(conflict(f"number {number}") for number in range(1, 7)))
    with pytest.raises(Conflict, match="number 5"):
        await retry_on_conflict(tries)
    assert tries.count == 5


async def test_n177_anything_else_goes_through_at_once() -> None:
    tries = Tries(NotFound(Status(reason="NotFound", code=404)))
    with pytest.raises(NotFound):
        await retry_on_conflict(tries)
    assert tries.count == 1


async def test_n177_pauses_are_of_ten_milliseconds_and_up_to_a_tenth_more() -> None:
    slept = await paused(Tries(*[conflict()] * 6))
    assert len(slept) == 4
    assert all(0.010 <= one <= 0.011 for one in slept)


async def test_pauses_grow_where_a_controller_may_be_busy() -> None:
    slept = await paused(Tries(*[conflict()] * 6), DEFAULT_BACKOFF)
    assert [round(one / 0.010, 0) in (low, low + 1, low + 2, low + 3) for one, low in zip(slept, (1, 5, 25), strict=True)] == [True] * 3


async def test_other_errors_are_tried_again_if_so_configured() -> None:
    tries = Tries(NotFound(Status(reason="NotFound", code=404)))
    assert await retry_on_error(tries, lambda error: isinstance(error, NotFound), clock=Recording()) == 2


@pytest.mark.server
async def test_a_change_survives_another_clients_change(client: Client, namespace: str) -> None:
    await client.create(ConfigMap(metadata=ObjectMeta(name="a")))
    disturbed = False

    async def change() -> ConfigMap:
        nonlocal disturbed
        found = await client.get(ConfigMap, "a")
        if not disturbed:
            disturbed = True
            await client.patch(ConfigMap, "a", {"data": {"theirs": "1"}})
        found.data["mine"] = "1"
        return await client.update(found)

    assert (await retry_on_conflict(change)).data == {"theirs": "1", "mine": "1"}
