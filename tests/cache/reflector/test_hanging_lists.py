"""A first list that hangs says so, and how far its request has come."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerFactory, WatchPolicy
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.config import ClusterConfig
from kubeloop.meta import DeadlineError
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
_BEGIN = b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":['


class Hanging:
    """A server that hangs after it has sent ``answer`` to whatever it received."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.served = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(1)
            if self._answer:
                writer.write(self._answer)
                await writer.drain()
            self.served.set()
            await reader.read()
        finally:
            writer.transport.abort()


@asynccontextmanager
async def hanging(answer: bytes, scheme: str, clock: FakeClock) -> AsyncIterator[InformerFactory]:
    """Informers of a server that hangs, once it does."""
    server = Hanging(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    config = ClusterConfig(server=f"{scheme}://127.0.0.1:{port}", insecure_skip_tls_verify=scheme == "https")
    policy = WatchPolicy(watch_list=False)
    async with (
        listening,
        Client(Transport(config, clock=clock), clock=clock) as client,
        InformerFactory(client, clock=clock, policy=policy) as informers,
    ):
        informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await asyncio.wait_for(server.served.wait(), 10)
        await asyncio.sleep(0.05)  # what was sent arrives
        yield informers


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = (record.getMessage() for record in caplog.records if "has not ended after" in record.getMessage())
    return [re.sub(r"after \d\.\d s", "after T", text) for text in texts]


@pytest.mark.parametrize(
    ("answer", "scheme", "steps"),
    [
        pytest.param(b"", "https", "name resolved after T, connected after T", id="in the handshake"),
        pytest.param(b"", "http", "name resolved after T, connected after T, request sent after T, no answer yet", id="before the answer"),
        pytest.param(
            _HEAD + b"%x\r\n%s\r\n" % (len(_BEGIN), _BEGIN),
            "http",
            f"name resolved after T, connected after T, request sent after T, headers received after T, {len(_BEGIN)} bytes so far",
            id="in the middle of the answer",
        ),
    ],
)
async def test_a_list_that_hangs_logs_its_steps(answer: bytes, scheme: str, steps: str, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    async with hanging(answer, scheme, clock):
        await clock.advance(9)
        assert warnings(caplog) == []
        await clock.advance(1)
        [text] = warnings(caplog)
        assert "configmaps" in text
        assert text.endswith(f": {steps})")


async def test_the_warnings_come_ever_more_seldom_and_a_deadline_says_the_last_one(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    async with hanging(b"", "http", clock) as informers:
        seen = []
        for _ in range(5):
            await clock.advance(10)
            seen.append(len(warnings(caplog)))
        assert seen == [1, 2, 2, 3, 3]
        waiting = asyncio.ensure_future(informers.wait_synced(1))
        await clock.advance(1)
        with pytest.raises(DeadlineError, match=r"the list has not ended after 40 s .*request sent"):
            await waiting
