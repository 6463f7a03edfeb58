"""Many requests against a server that fails at random: every answer is right, and no write is carried out twice."""

from __future__ import annotations

import asyncio
import gzip
import random
from collections import Counter

import pytest

from kubeloop.meta import ApiError, TransportError
from kubeloop.timing import SystemClock
from kubeloop.transport import Transport
from kubeloop.transport.connection import Connections
from tests.faults import FaultServer, Received, Reply

OK = b"HTTP/1.1 200 OK\r\n"
BODY = 5000
METHODS = ("GET", "GET", "POST", "PUT", "PATCH", "DELETE")


class Impatient(SystemClock):
    """Pauses between tries take no time."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Model:
    """What the server has carried out, whether or not anybody heard of it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.carried_out: Counter[tuple[str, str]] = Counter()

    def answer(self, request: Received) -> Reply:
        body = content(request.target)
        length = b"Content-Length: %d\r\n\r\n" % len(body)
        busy = {"Retry-After": "0"}
        reply = self.chance.choice(
            (
                *[Reply(body=body)] * 6,
                Reply(chunks=[body[:1], body[1:]]),
                Reply(body=gzip.compress(body), headers={"Content-Encoding": "gzip"}),
                Reply(raw=b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" + OK + length + body),
                Reply(raw=OK + length + body + OK + b"Content-Length: 4\r\n\r\nevil"),
                Reply(raw=OK + length + body, end="leave"),
                Reply(raw=OK + b"Connection: close\r\n" + length + body, end="leave"),
                Reply(body=body, end="cut"),
                Reply(raw=OK + length + body[:9], end="reset"),
                Reply(raw=OK + length + body[:9], end="tear"),
                Reply(status=0),
                Reply(raw=b"no HTTP\r\n\r\n", end="leave"),
                Reply(500),
                Reply(429, headers=busy),
                Reply(503, headers=busy),
            )
        )
        if reply.status not in (429, 503):
            self.carried_out[request.method, request.target] += 1
        return reply


def content(target: str) -> bytes:
    return (target.encode() + b" ") * (BODY // len(target))


@pytest.mark.parametrize("tls", [pytest.param(True, id="by TLS"), pytest.param(False, id="without TLS")])
async def test_answers_are_whole_or_errors_and_no_write_is_carried_out_twice(tls: bool) -> None:
    model = Model(seed=7)
    refused = 0

    async def one(number: int, transport: Transport) -> None:
        nonlocal refused
        method = METHODS[number % len(METHODS)]
        try:
            answer = await transport.request(method, f"/x/{number}", body=None if method == "GET" else b"{}" * 50)
            assert answer.body == content(f"/x/{number}")
        except (TransportError, ApiError):
            refused += 1
        for _ in range(number % 4):  # the ends of connections are seen in time, or not
            await asyncio.sleep(0)

    async def left(number: int, transport: Transport) -> None:
        """A request that is cancelled somewhere, most likely."""
        task = asyncio.ensure_future(one(number, transport))
        for _ in range(model.chance.randrange(60)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()

    async with FaultServer(answer=model.answer, tls=tls) as server, Transport(server.config(), clock=Impatient()) as transport:
        for number in range(300):
            await one(number, transport)
        for first in range(300, 500, 20):
            await asyncio.gather(*(left(number, transport) for number in range(first, first + 20)))
        pool = transport._sender
        assert isinstance(pool, Connections)
        assert len(pool._all) == len(pool._idle)  # no unused connection is kept
        assert transport.places.waiting == 0
    assert 0 < refused < 300
    assert not [key for key, count in model.carried_out.items() if key[0] != "GET" and count > 1]
