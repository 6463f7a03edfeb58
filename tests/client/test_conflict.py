"""Read-change-write that meets somebody else's write."""

from __future__ import annotations

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client, retry_on_conflict
from kubeloop.meta import ApiError, Conflict, NotFound, ObjectMeta, Status


class Tries:
    """Fails as often as told, then gives the number of the try."""

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


async def test_a_conflict_is_tried_again() -> None:
    assert await retry_on_conflict(Tries(conflict(), conflict())) == 3


async def test_after_five_tries_the_last_conflict_is_the_error() -> None:
    tries = Tries(*(conflict(f"number {number}") for number in range(1, 7)))
    with pytest.raises(Conflict, match="number 5"):
        await retry_on_conflict(tries)
    assert tries.count == 5


async def test_anything_else_goes_through_at_once() -> None:
    tries = Tries(NotFound(Status(reason="NotFound", code=404)))
    with pytest.raises(NotFound):
        await retry_on_conflict(tries)
    assert tries.count == 1


@pytest.mark.server
async def test_a_change_survives_somebody_elses(client: Client, namespace: str) -> None:
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
