"""Independent pieces of work (behaviour H119)."""

import asyncio
import itertools

import pytest

from kubeloop.workqueue import parallelize


@pytest.mark.parametrize(
    ("pieces", "workers"),
    [
        pytest.param(1000, 10, id="more pieces than workers"),
        pytest.param(3, 10, id="fewer pieces than workers"),
        pytest.param(999, 1, id="one worker"),
        pytest.param(0, 10, id="no piece"),
    ],
)
async def test_each_piece_is_worked_on_once_and_no_more_at_a_time_than_there_are_workers(pieces: int, workers: int) -> None:
    """H119"""
    seen = [0] * pieces
    running = most = 0

    async def work(piece: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        seen[piece] += 1
        running -= 1

    await parallelize(work, range(pieces), workers=workers)
    assert seen == [1] * pieces
    assert most == min(pieces, workers)


async def test_no_piece_is_begun_once_until_is_set_and_those_under_way_end() -> None:
    """H119"""
    until = asyncio.Event()
    begun, ended = list[int](), list[int]()

    async def work(piece: int) -> None:
        begun.append(piece)
        if piece == 7:
            until.set()
        await asyncio.sleep(0)
        ended.append(piece)

    await parallelize(work, itertools.count(), workers=4, until=until)
    assert begun == ended == list(range(8))


async def test_nothing_is_begun_if_until_is_set_before() -> None:
    """H119"""
    until = asyncio.Event()
    until.set()
    begun = list[int]()

    async def work(piece: int) -> None:
        begun.append(piece)

    await parallelize(work, range(5), until=until)
    assert begun == []


async def test_a_piece_that_fails_cancels_those_under_way_and_begins_no_other() -> None:
    begun, cancelled = list[int](), list[int]()

    async def work(piece: int) -> None:
        begun.append(piece)
        if piece == 1:
            raise ValueError("no")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(piece)
            raise

    with pytest.raises(ExceptionGroup) as failure:
        await parallelize(work, range(10), workers=3)
    assert failure.group_contains(ValueError, match="no")
    assert set(begun) == {0, 1, *cancelled}
    assert 0 in cancelled


async def test_no_worker_is_refused() -> None:
    async def work(piece: int) -> None:
        pass

    with pytest.raises(ValueError, match="at least 1 worker"):
        await parallelize(work, range(3), workers=0)
