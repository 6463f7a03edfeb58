"""Work aside: the event loop goes on meanwhile; and the archive that trains and compresses so."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest

from kubeloop.cache.blobs.blob_store import BlobStore, in_slices, in_thread


async def test_work_in_a_thread_ends_on_the_loop() -> None:
    done: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
    in_thread(threading.get_ident, lambda worker: done.set_result((worker, threading.get_ident())))
    worker, reported = await done
    assert reported == threading.get_ident() != worker


def test_without_a_loop_work_is_done_at_once() -> None:
    done: list[int] = []
    in_thread(threading.get_ident, done.append)

    def some() -> bool:
        done.append(0)
        return len(done) < 4

    in_slices(some)
    assert done == [threading.get_ident(), 0, 0, 0]


async def test_between_slices_others_run() -> None:
    order: list[str] = []

    def some() -> bool:
        order.append("slice")
        return order.count("slice") < 3

    in_slices(some)
    for _ in range(3):
        order.append("other")
        await asyncio.sleep(0)
    assert order == ["slice", "other", "slice", "other", "slice", "other"]


async def test_an_archive_trains_while_the_loop_goes_on_and_then_compresses_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeloop.cache.blobs.blob_store.SLICE", 100)
    archive = BlobStore()
    archive.begin_list()
    common = random.Random(1).randbytes(1000).hex()
    documents = [b'{"number":%d,"common":"%b"}' % (number, common.encode()) for number in range(600)]
    packed = [archive.pack(each) for each in documents]
    archive.end_list()
    held = archive.held_bytes
    assert held == sum(map(len, documents)), "nothing is done on the spot"
    turns: set[int] = set()
    while archive.held_bytes:
        turns.add(archive.held_bytes)
        await asyncio.sleep(0)
        assert [packed[at].document() for at in (0, 299, 599)] == [documents[at] for at in (0, 299, 599)]
    assert len(turns) >= 6, "in slices"
    assert archive.dictionaries == 1
    assert [each.document() for each in packed] == documents
    assert sum(len(each.blob) for each in packed) < held / 10
