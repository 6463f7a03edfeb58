"""Consistent reads: the cache reaches the newest version of the API server by its watch, or by a comparison with a list of metadata."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kubeloop.meta.errors import ApiError
from kubeloop.proxy.cached.progress import ARRIVAL, PATIENCE
from kubeloop.proxy.upstream import bad_gateway
from kubeloop.timing import FakeClock
from kubeloop.transport.round_tripper import OutgoingRequest
from kubeloop.types import JSONObject
from tests.proxy.cached.caches import TestCache, cache_of, settled
from tests.proxy.samples import ScriptedAnswer, ScriptedUpstream, pod


class _ApiServer:
    """The lists of an API server at ``version``, as a scripted upstream."""

    def __init__(self, *trees: JSONObject, version: int) -> None:
        self.trees = list(trees)
        self.version = version
        self.away = False
        self.page = 0

    def __call__(self, request: OutgoingRequest) -> Any:
        if self.away:
            raise bad_gateway("away")
        trees, metadata = self.trees, {"resourceVersion": str(self.version)}
        if "limit=1" in request.target.split("?")[1].split("&"):
            trees = trees[:1]
        elif self.page:
            begin = int(request.target.partition("continue=")[2] or 0)
            if begin + self.page < len(trees):
                metadata["continue"] = str(begin + self.page)
            trees = trees[begin : begin + self.page]
        items = [{"metadata": {name: tree["metadata"][name] for name in ("name", "namespace", "resourceVersion")}} for tree in trees]
        body = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}
        return ScriptedAnswer(chunks=[json.dumps(body, separators=(",", ":")).encode()])


A, B = pod("a", version="3"), pod("b", version="4")


async def confirmed(cache: TestCache, clock: FakeClock, *, compare: bool = True) -> asyncio.Task[bool]:
    """Return a running confirmation, after the time in which a change arrives."""
    task = asyncio.create_task(cache.progress.confirm(compare=compare))
    await settled()
    await clock.advance(ARRIVAL)
    await settled()
    return task


async def test_a_cache_at_the_newest_version_needs_no_comparison() -> None:
    clock, server = FakeClock(), _ApiServer(A, B, version=9)
    async with cache_of(A, B, version=9, clock=clock, upstream=ScriptedUpstream(server)) as cache:
        assert await cache.progress.confirm(compare=True)
        assert (cache.progress.reached, cache.progress.compared) == (1, 0)


async def test_a_change_that_arrives_in_time_needs_no_comparison() -> None:
    clock, server = FakeClock(), _ApiServer(A, pod("b", version="12"), version=12)
    async with cache_of(A, B, version=9, clock=clock, upstream=ScriptedUpstream(server)) as cache:
        task = asyncio.create_task(cache.progress.confirm(compare=True))
        await settled()
        assert not task.done()
        cache.put(pod("b", version="12"))
        assert await task
        assert cache.progress.compared == 0


async def test_writes_of_other_resources_are_confirmed_by_a_comparison() -> None:
    clock, server = FakeClock(), _ApiServer(A, B, version=30)
    async with cache_of(A, B, version=9, clock=clock, upstream=ScriptedUpstream(server)) as cache:
        assert await (await confirmed(cache, clock))
        assert cache.objects.version == 30
        assert cache.progress.compared == 1


async def test_without_a_comparison_the_request_has_to_be_forwarded() -> None:
    clock, server = FakeClock(), _ApiServer(A, B, version=30)
    async with cache_of(A, B, version=9, clock=clock, upstream=ScriptedUpstream(server)) as cache:
        assert not await (await confirmed(cache, clock, compare=False))
        assert cache.objects.version == 9


async def test_a_comparison_reads_all_pages() -> None:
    clock, server = FakeClock(), _ApiServer(A, B, pod("c", version="5"), version=30)
    server.page = 1
    upstream = ScriptedUpstream(server)
    async with cache_of(A, B, pod("c", version="5"), version=9, clock=clock, upstream=upstream) as cache:
        assert await (await confirmed(cache, clock))
        assert len(upstream.targets) == 4


@pytest.mark.parametrize(
    ("trees", "arrive"),
    [
        pytest.param([A, pod("b", version="12")], lambda cache: cache.put(pod("b", version="12")), id="a change is awaited"),
        pytest.param([A, B, pod("c", version="12")], lambda cache: cache.put(pod("c", version="12")), id="a new object is awaited"),
        pytest.param([A], lambda cache: cache.remove_pod(pod("b", version="12")), id="a deletion is awaited"),
        pytest.param([A, pod("b", version="12")], lambda cache: cache.bookmark(30), id="a bookmark ends the wait"),
        pytest.param(
            [A, pod("b", version="12")], lambda cache: cache.bring_list(A, pod("b", version="12"), version=30), id="a list ends the wait"
        ),
    ],
)
async def test_a_comparison_waits_for_what_the_watch_has_not_brought(trees: list[JSONObject], arrive: Any) -> None:
    clock, server = FakeClock(), _ApiServer(*trees, version=30)
    async with cache_of(A, B, version=9, clock=clock, upstream=ScriptedUpstream(server)) as cache:
        task = await confirmed(cache, clock)
        assert not task.done()
        assert cache.objects.version == 9
        arrive(cache)
        assert await task
        assert cache.objects.version == 30


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda cache: cache.put(pod("b", version="33")), id="a cache with a newer state is not behind"),
        pytest.param(lambda cache: cache.remove_pod(pod("b", version="33")), id="a cache without an object that is deleted is not behind"),
        pytest.param(lambda cache: cache.put(pod("c", version="33")), id="a cache with a newer object is not behind"),
    ],
)
async def test_a_comparison_with_an_older_list(change: Any) -> None:
    clock, server = FakeClock(), _ApiServer(A, B, version=30)
    async with cache_of(A, B, version=9, clock=clock, upstream=ScriptedUpstream(server)) as cache:
        task = asyncio.create_task(cache.progress.confirm(compare=True))
        await settled()
        change(cache)
        assert await task
        assert cache.objects.version == 33


async def test_a_watch_that_lags_leaves_the_read_unconfirmed() -> None:
    clock, server = FakeClock(), _ApiServer(A, pod("b", version="12"), version=30)
    async with cache_of(A, B, version=9, clock=clock, upstream=ScriptedUpstream(server)) as cache:
        task = await confirmed(cache, clock)
        await clock.advance(PATIENCE)
        assert not await task
        assert cache.objects.version == 9


async def test_readers_at_the_same_time_share_the_requests() -> None:
    clock, server = FakeClock(), _ApiServer(A, B, version=30)
    upstream = ScriptedUpstream(server)
    async with cache_of(A, B, version=9, clock=clock, upstream=upstream) as cache:
        tasks = [asyncio.create_task(cache.progress.confirm(compare=True)) for _ in range(50)]
        await settled()
        await clock.advance(ARRIVAL)
        assert all(await asyncio.gather(*tasks))
        assert len(upstream.targets) == 2


async def test_a_version_of_the_past_is_reached_by_a_comparison() -> None:
    clock, server = FakeClock(), _ApiServer(A, B, version=30)
    async with cache_of(A, B, version=9, clock=clock, upstream=ScriptedUpstream(server)) as cache:
        task = asyncio.create_task(cache.progress.reach(25))
        await settled()
        await clock.advance(ARRIVAL)
        assert await task


async def test_a_version_of_the_future_is_not_reached_in_three_seconds() -> None:
    clock, server = FakeClock(), _ApiServer(A, B, version=30)
    upstream = ScriptedUpstream(server)
    async with cache_of(A, B, version=9, clock=clock, upstream=upstream) as cache:
        task = asyncio.create_task(cache.progress.reach(31))
        await settled()
        await clock.advance(ARRIVAL)
        await settled()
        assert not task.done()
        await clock.advance(PATIENCE)
        assert not await task
        assert len(upstream.targets) == 1  # no comparison could reach it


async def test_an_api_server_that_is_away_fails_consistent_reads() -> None:
    clock, server = FakeClock(), _ApiServer(A, B, version=30)
    server.away = True
    async with cache_of(A, B, version=9, clock=clock, upstream=ScriptedUpstream(server)) as cache:
        with pytest.raises(ApiError, match="away"):
            await cache.progress.confirm(compare=True)
