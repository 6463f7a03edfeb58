"""Watches that no rule concerns pass as bytes; when the rules change, they end with 410 at the boundary of a frame."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

import pytest

from kubeloop.codec import protobuf
from kubeloop.meta.errors import TransportError
from kubeloop.proxy.open_watches import PassedEvents, UpstreamWatches
from kubeloop.serving.answer import Aborted
from tests.proxy.samples import JSON_TYPE, PROTOBUF, ScriptedAnswer, frame, pod, pooled

BINARY = f"{PROTOBUF};stream=watch"
LINES = frame("ADDED", pod("a")) + frame("ADDED", pod("b"))
FRAMES = protobuf.encode_event("ADDED", protobuf.encode(pod("a"))) + protobuf.encode_event("ADDED", protobuf.encode(pod("b")))


class Client:
    """A connection that takes each frame at the second attempt. ``taken`` is called after each."""

    chunked = False

    def __init__(self, taken: Callable[[bytes], None]) -> None:
        self._taken = taken
        self._refused = False

    def encode(self, frame: bytes) -> bytes:
        return frame

    def push(self, encoded: bytes) -> bool:
        self._refused = not self._refused
        if not self._refused:
            self._taken(encoded)
        return not self._refused

    async def write(self, encoded: bytes) -> None:
        self._taken(encoded)

    async def drained(self) -> None:
        await asyncio.sleep(0)


@pytest.fixture(params=["pulled", "pushed"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def passed(way: str, media_type: str, chunks: Sequence[bytes | Exception], *, expire_after: int) -> tuple[bytes, bool]:
    """Return what the client of a watch gets, and whether its connection is cut. The rules change after some chunks."""
    watches = UpstreamWatches()
    answer = ScriptedAnswer(chunks=chunks)
    opened = watches.add(pooled(answer), "", "v1", "pods")
    received: list[bytes] = []
    cut = False

    def take(chunk: bytes) -> None:
        received.append(chunk)
        if len(received) == expire_after:
            assert watches.expire(lambda *resource: resource == ("", "v1", "pods")) == 1

    body = PassedEvents(opened, media_type)
    try:
        if way == "pushed":
            await body.push(Client(take))
        else:
            async for chunk in body.pull():
                take(chunk)
    except Aborted:
        cut = True
    assert answer.closed
    assert len(watches) == 0
    return b"".join(received), cut


def last_event(media_type: str, data: bytes, before: bytes) -> object:
    assert data.startswith(before)
    rest = data.removeprefix(before)
    if media_type == JSON_TYPE:
        assert rest.endswith(b"\n")
        return json.loads(rest)
    (event,) = protobuf.split_frames(rest)
    return protobuf.decode_event(event)


@pytest.mark.parametrize(("media_type", "body"), [(JSON_TYPE, LINES), (BINARY, FRAMES)])
async def test_a_watch_passes_as_bytes_to_its_end(way: str, media_type: str, body: bytes) -> None:
    chunks = [body[at : at + 7] for at in range(0, len(body), 7)]
    assert await passed(way, media_type, chunks, expire_after=0) == (body, False)


@pytest.mark.parametrize("size", [1, 3, 7, 4096])
@pytest.mark.parametrize(("media_type", "body"), [(JSON_TYPE, LINES), (BINARY, FRAMES)])
async def test_after_a_whole_frame_the_last_event_is_410(way: str, media_type: str, body: bytes, size: int) -> None:
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    data, cut = await passed(way, media_type, [*chunks, b"more"], expire_after=len(chunks))
    event = last_event(media_type, data, body)
    assert isinstance(event, dict)
    assert (event["type"], event["object"]["code"], event["object"]["reason"], cut) == ("ERROR", 410, "Expired", False)


@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize(("media_type", "body"), [(JSON_TYPE, LINES), (BINARY, FRAMES)])
async def test_in_the_middle_of_a_frame_the_connection_is_cut(way: str, media_type: str, body: bytes, size: int) -> None:
    part = body[: len(body) - size]
    data, cut = await passed(way, media_type, [part[:10], part[10:], b"more"], expire_after=2)
    assert (data, cut) == (part, True)


async def test_a_watch_that_breaks_off_is_cut_for_the_client(way: str) -> None:
    assert await passed(way, JSON_TYPE, [LINES, TransportError("reset")], expire_after=0) == (LINES, True)


async def test_only_watches_of_concerned_resources_end() -> None:
    watches, answers = UpstreamWatches(), [ScriptedAnswer(), ScriptedAnswer()]
    watches.add(pooled(answers[0]), "", "v1", "pods")
    other = watches.add(pooled(answers[1]), "apps", "v1", "deployments")
    assert watches.expire(lambda group, version, resource: (group, version, resource) == ("", "v1", "pods")) == 1
    assert ([answer.closed for answer in answers], other.expired) == ([True, False], False)
