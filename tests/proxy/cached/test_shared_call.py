"""One call for many callers, none of which gets a result that is older than its request."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.proxy.cached.shared_call import SharedCall
from tests.proxy.cached.caches import settled


class _Calls:
    """Calls that the test ends one by one."""

    def __init__(self) -> None:
        self.started: list[asyncio.Future[int]] = []

    async def __call__(self) -> int:
        self.started.append(asyncio.get_running_loop().create_future())
        return await self.started[-1]


async def test_callers_at_the_same_time_share_a_call_and_later_ones_wait_for_the_next() -> None:
    calls = _Calls()
    shared = SharedCall(calls)
    first = [asyncio.create_task(shared()) for _ in range(3)]
    await settled()
    later = [asyncio.create_task(shared()) for _ in range(3)]
    await settled()
    assert len(calls.started) == 1
    calls.started[0].set_result(1)
    await settled()
    assert [task.result() for task in first] == [1, 1, 1]
    assert len(calls.started) == 2
    calls.started[1].set_result(2)
    assert await asyncio.gather(*later) == [2, 2, 2]


async def test_an_error_reaches_all_its_callers_and_not_the_next() -> None:
    calls = _Calls()
    shared = SharedCall(calls)
    first = [asyncio.create_task(shared()) for _ in range(2)]
    await settled()
    later = asyncio.create_task(shared())
    await settled()
    calls.started[0].set_exception(ValueError("no"))
    await settled()
    for task in first:
        with pytest.raises(ValueError, match="no"):
            task.result()
    calls.started[1].set_result(2)
    assert await later == 2


async def test_a_caller_that_leaves_does_not_end_the_call_of_the_others() -> None:
    calls = _Calls()
    shared = SharedCall(calls)
    leaving, staying = asyncio.create_task(shared()), asyncio.create_task(shared())
    await settled()
    leaving.cancel()
    await settled()
    calls.started[0].set_result(1)
    assert await staying == 1


async def test_close_ends_the_calls() -> None:
    shared = SharedCall(_Calls())
    task = asyncio.create_task(shared())
    await settled()
    await shared.close()
    with pytest.raises(asyncio.CancelledError):
        await task
