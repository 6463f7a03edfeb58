"""With any sender, the transport applies its limits, retries, credentials, hooks and errors."""

from __future__ import annotations

import pytest

from kubeloop.config import ClusterConfig, Credentials
from kubeloop.http1.headers import Headers
from kubeloop.meta import NotFound, TransportError
from kubeloop.timing import FakeClock
from kubeloop.transport import Hook, Outcome, SentRequest, Transport
from kubeloop.transport.round_tripper import OutgoingRequest, ResponseHead


class Ready:
    """An answer that is there already."""

    def __init__(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.status = status
        self.headers = Headers()
        for name, value in headers.items():
            self.headers.add(name.replace("_", "-"), value)
        self.body = body
        self.closed = False

    async def read(self, limit: int) -> bytes:
        assert len(self.body) <= limit
        return self.body

    async def chunk(self, timeout: float | None = None) -> bytes:
        body, self.body = self.body, b""
        return body

    async def write(self, data: bytes) -> None:
        self.body += data.upper()

    def close(self) -> None:
        self.closed = True


class Script:
    def __init__(self, *answers: Ready) -> None:
        self.answers = list(answers)
        self.sent: list[OutgoingRequest] = []
        self.closed = False

    async def send(self, request: OutgoingRequest) -> ResponseHead:
        self.sent.append(request)
        return self.answers[len(self.sent) - 1]

    async def close(self) -> None:
        self.closed = True


CONFIG = ClusterConfig(server="https://in.process:6443", credentials=Credentials(token="t"))


async def test_a_sender_is_asked_with_credentials_tried_again_and_closed() -> None:
    outcomes: list[int | None] = []

    class Count(Hook):
        def answered(self, request: SentRequest, outcome: Outcome) -> None:
            outcomes.append(outcome.status)

    script = Script(Ready(429, Retry_After="0"), Ready(200, b"done"), Ready(404))
    async with Transport(CONFIG, sender=script, clock=FakeClock(), hooks=[Count()]) as transport:
        assert (await transport.request("GET", "/api/v1/pods", query={"limit": 1})).body == b"done"
        with pytest.raises(NotFound, match="list pods"):
            await transport.request("GET", "/api/v1/pods")
        assert dict(transport.figures.requests) == {("429", "GET"): 1, ("200", "GET"): 1, ("404", "GET"): 1}
    assert [one.target for one in script.sent] == ["/api/v1/pods?limit=1"] * 2 + ["/api/v1/pods"]
    assert ("Authorization", "Bearer t") in script.sent[0].headers
    assert repr(script.sent[0]) == "OutgoingRequest(list pods)"
    assert outcomes == [429, 200, 404]
    assert script.closed
    assert all(answer.closed for answer in script.answers)
    with pytest.raises(TransportError, match="this transport is closed"):
        await transport.request("GET", "/x")


async def test_streams_and_changes_of_protocol_too() -> None:
    script = Script(Ready(200, b"line\n"), Ready(101))
    async with Transport(CONFIG, sender=script) as transport:
        async with transport.stream("GET", "/api/v1/pods", query={"watch": True}) as stream:
            assert [chunk async for chunk in stream.chunks()] == [b"line\n"]
        async with transport.upgrade("GET", "/x", protocol="websocket") as connection:
            await connection.write(b"hello")
            assert await connection.read() == b"HELLO"
    assert [one.description for one in script.sent] == ["watch pods", "GET /x"]
    assert script.sent[1].upgrade == "websocket"
