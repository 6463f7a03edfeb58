"""A recording as a server: which response a request gets, when, and the answer to an unknown one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kubeloop.serving.listener import Listener
from kubeloop.tap.recording import read_recording
from kubeloop.tap.replay import ReplayServer
from kubeloop.timing import Clock, FakeClock, SystemClock
from tests.tap.recordings import entry, frame, har, pod, write

PODS = "/api/v1/namespaces/shop/pods"


@asynccontextmanager
async def replayed(
    folder: Path, content: dict[str, Any], clock: Clock | None = None, *, fast: bool = True
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the replay of a recording."""
    server = ReplayServer(read_recording(write(folder / "run.har", content)), clock or SystemClock(), fast=fast)
    listener = Listener(server.handle, None)
    await listener.bind()
    await listener.serve()
    try:
        async with aiohttp.ClientSession(listener.url, headers={"Accept": "application/json"}) as session:
            yield session
    finally:
        await listener.close(grace=0)


async def get(session: aiohttp.ClientSession, target: str, **headers: str) -> Any:
    async with session.get(target, headers=headers) as reply:
        return reply.status, await reply.json()


RECORDED = har(
    [
        entry(1, "GET", f"{PODS}?limit=500&resourceVersion=0", at=0, time=20, body={"n": 1}),
        entry(2, "GET", f"{PODS}/web-0", at=30, time=20, body={"n": 2}),
        entry(3, "GET", f"{PODS}/web-0", at=60, time=20, body={"n": 3}),
        entry(4, "PUT", f"{PODS}/web-0", at=90, time=20, status=409, body={"n": 4}),
        entry(5, "GET", "/api?timeout=32s", at=90, time=20, body={"n": 5}),
    ]
)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        pytest.param(f"{PODS}?limit=500&resourceVersion=0", 1, id="the same query"),
        pytest.param(f"{PODS}?resourceVersion=0&limit=500", 1, id="the same query in another order"),
        pytest.param(f"{PODS}?limit=100&resourceVersion=0", 1, id="another limit"),
        pytest.param("/api", 5, id="without a timeout"),
        pytest.param(f"{PODS}?limit=500&resourceVersion=7", None, id="another resourceVersion has no response"),
        pytest.param(PODS + "?labelSelector=a", None, id="another selector has no response"),
        pytest.param("/version", None, id="an unknown path has no response"),
    ],
)
async def test_a_request_gets(tmp_path: Path, target: str, expected: int | None) -> None:
    async with replayed(tmp_path, RECORDED) as session:
        status, found = await get(session, target)
    if expected is None:
        assert (status, found["kind"], found["reason"]) == (404, "Status", "NotFound")
        assert found["message"] == f"the recording run.har has no response to GET {target}"
    else:
        assert (status, found) == (200, {"n": expected})


async def test_repeated_requests_get_the_responses_in_order_and_then_the_last(tmp_path: Path) -> None:
    async with replayed(tmp_path, RECORDED) as session:
        assert [(await get(session, f"{PODS}/web-0"))[1]["n"] for _ in range(4)] == [2, 3, 3, 3]


async def test_a_write_gets_its_recorded_status(tmp_path: Path) -> None:
    async with replayed(tmp_path, RECORDED) as session, session.put(f"{PODS}/web-0", json={}) as reply:
        assert (reply.status, await reply.json()) == (409, {"n": 4})


async def test_the_same_accept_header_is_preferred(tmp_path: Path) -> None:
    table = entry(1, "GET", PODS, at=0, time=1, body={"n": "table"})
    table["request"]["headers"] = [{"name": "Accept", "value": "application/json;as=Table"}]
    async with replayed(tmp_path, har([table, entry(2, "GET", PODS, at=1, time=1, body={"n": "list"})])) as session:
        assert (await get(session, PODS))[1] == {"n": "list"}
        assert (await get(session, PODS, Accept="application/json;as=Table"))[1] == {"n": "table"}


WATCH = entry(
    1,
    "GET",
    f"{PODS}?watch=true&timeoutSeconds=400",
    at=0,
    time=3000,
    _verb="WATCH",
    _frames=[frame(1000, "ADDED", pod("web-0", 5)), frame(2000, "DELETED", pod("web-0", 6))],
)


async def test_a_watch_sends_its_events_and_ends(tmp_path: Path) -> None:
    async with replayed(tmp_path, har([WATCH])) as session, session.get(f"{PODS}?watch=true&timeoutSeconds=399") as reply:
        lines = [json.loads(line) async for line in reply.content]
    assert [(line["type"], line["object"]["metadata"]["resourceVersion"]) for line in lines] == [("ADDED", "5"), ("DELETED", "6")]


async def test_a_repeated_watch_sends_nothing_twice_and_ends_at_its_timeout(tmp_path: Path) -> None:
    clock = FakeClock()
    async with replayed(tmp_path, har([WATCH]), clock) as session:
        async with session.get(f"{PODS}?watch=true&timeoutSeconds=400") as reply:
            assert (await reply.read()).count(b"\n") == 2
        async with session.get(f"{PODS}?watch=true&timeoutSeconds=300") as reply:
            await clock.advance(299)
            assert not reply.content.at_eof()
            await clock.advance(2)
            assert await reply.read() == b""


async def test_a_watch_that_the_client_ended_stays_open(tmp_path: Path) -> None:
    watch = {**WATCH, "_outcome": "the client closed the connection"}
    async with replayed(tmp_path, har([watch])) as session, session.get(f"{PODS}?watch=true") as reply:
        assert b"ADDED" in await reply.content.readline()
        assert b"DELETED" in await reply.content.readline()
        assert not reply.content.at_eof()


async def test_events_come_at_their_recorded_times(tmp_path: Path) -> None:
    clock = FakeClock()
    async with replayed(tmp_path, har([WATCH]), clock, fast=False) as session:
        request = asyncio.ensure_future(session.get(f"{PODS}?watch=true&timeoutSeconds=400"))
        while not request.done():  # the connection takes some turns of the loop
            await clock.advance(0.001)
            await asyncio.sleep(0)
        async with await request as reply:
            line = asyncio.ensure_future(reply.content.readline())
            await clock.advance(0.5)
            assert not line.done()
            await clock.advance(0.6)
            assert b"ADDED" in await line


async def test_a_response_that_broke_off_breaks_off_again(tmp_path: Path) -> None:
    broken = entry(1, "GET", PODS, at=0, time=1, body={"n": 1}, _outcome="the server's connection broke: EOF")
    async with replayed(tmp_path, har([broken])) as session:
        with pytest.raises(aiohttp.ClientPayloadError):
            await get(session, PODS)


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        pytest.param({"response": {"status": 0}, "_outcome": "EOF"}, 502, "the recorded request got no response: EOF", id="no response"),
        pytest.param(
            {"response": {"status": 101}}, 501, "an upgraded connection cannot be replayed: its bytes are not recorded", id="an upgrade"
        ),
        pytest.param(
            {"response": {"status": 200, "content": {"_omitted": "too large"}}}, 501, "the recording has no body: too large", id="no body"
        ),
        pytest.param(
            {"response": {"status": 200, "content": {"text": "%", "encoding": "base64"}}}, 500, "is not valid base64", id="a damaged body"
        ),
    ],
)
async def test_what_cannot_be_replayed_is_a_status(tmp_path: Path, change: dict[str, Any], status: int, message: str) -> None:
    async with replayed(tmp_path, har([{**entry(1, "GET", PODS, at=0, time=1), **change}])) as session:
        code, found = await get(session, PODS)
    assert (code, found["kind"]) == (status, "Status")
    assert message in found["message"]


async def test_the_path_before_the_api_of_the_recorded_server_is_left_out(tmp_path: Path) -> None:
    one = entry(1, "GET", "/k8s/clusters/c-1/version", at=0, time=1, body={"n": 1})
    async with replayed(tmp_path, har([one], server="https://127.0.0.1:6443/k8s/clusters/c-1")) as session:
        assert await get(session, "/version") == (200, {"n": 1})
