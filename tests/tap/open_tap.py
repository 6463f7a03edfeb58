"""A tap in the test's event loop, before a server that a test scripts byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from kubeloop.config import ClusterConfig
from kubeloop.meta.tls import client_tls
from kubeloop.tap.certificates import TapCertificates
from kubeloop.tap.listener import TapListener
from kubeloop.tap.relay import RelayClock
from kubeloop.tap.traffic import ConnectionFailed, RequestEnded, TrafficFact
from kubeloop.tap.upstream import UpstreamServer, UpstreamServers
from kubeloop.tasks import Supervisor
from kubeloop.timing import Clock, SystemClock

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def scripted_server(script: Script) -> AsyncIterator[str]:
    """A server on loopback that runs ``script`` for each connection; its URL."""

    async def run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await script(reader, writer)
        writer.close()

    server = await asyncio.start_server(run, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def request_head(reader: asyncio.StreamReader) -> str:
    return (await reader.readuntil(b"\r\n\r\n")).decode()


def answers(*parts: bytes, heads: list[str] | None = None) -> Script:
    """A script that answers each request of a connection with these bytes, and notes its head."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await request_head(reader)
            if heads is not None:
                heads.append(head)
            for part in parts:
                writer.write(part)
                await writer.drain()

    return script


def response(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


@dataclass
class OpenTap:
    """A running tap. ``facts`` is what it has reported."""

    url: str
    port: int
    tls: ssl.SSLContext
    certificates: TapCertificates
    facts: list[TrafficFact] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def observe(self, fact: TrafficFact) -> None:
        self.facts.append(fact)
        self.changed.set()

    async def fact(self, kind: type[TrafficFact], count: int = 1) -> TrafficFact:
        """The last of ``count`` facts of a kind, as soon as it is there."""
        async with asyncio.timeout(10):
            while len(found := [one for one in self.facts if isinstance(one, kind)]) < count:
                self.changed.clear()
                await self.changed.wait()
        return found[count - 1]

    async def outcome(self, count: int = 1) -> str:
        ended = await self.fact(RequestEnded, count)
        assert isinstance(ended, RequestEnded)
        return ended.outcome

    async def failure(self) -> str:
        failed = await self.fact(ConnectionFailed)
        assert isinstance(failed, ConnectionFailed)
        return failed.reason

    async def connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)

    async def raw(self, request: bytes) -> bytes:
        """All that a connection brings for a request, until it ends."""
        reader, writer = await self.connection()
        try:
            writer.write(request)
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionError):
                    return await reader.read()
                return b""
        finally:
            writer.close()

    def session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(self.url, connector=aiohttp.TCPConnector(ssl=self.tls), auto_decompress=False)


@asynccontextmanager
async def open_tap(config: ClusterConfig | str, *, clock: Clock | None = None, connect: bool = False) -> AsyncIterator[OpenTap]:
    """A tap before a server. ``connect``: clients reach it by CONNECT."""
    config = ClusterConfig(server=config) if isinstance(config, str) else config
    time = RelayClock(clock or SystemClock())
    certificates = TapCertificates()
    upstream = UpstreamServer(config, time.clock)
    tls = client_tls()
    tls.load_verify_locations(cadata=certificates.authority.decode())
    tap = OpenTap("", 0, tls, certificates)
    destination = UpstreamServers(upstream, config, time.clock) if connect else upstream
    listener = TapListener(destination, certificates, tap.observe, time)
    listener.bind()
    tap.url, tap.port = f"https://127.0.0.1:{listener.port}", listener.port
    async with Supervisor(time.clock, logging.getLogger("tests.tap")) as supervisor:
        accepting = listener.serve(supervisor)
        try:
            yield tap
        finally:
            await accepting.stop()
            await listener.close()
