"""A TLS server on a real socket whose answers and faults a test writes down: each request takes the next ``Reply`` of the script."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import socket
import ssl
import struct
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from kubeloop.config import ClusterConfig, Credentials, Pem
from kubeloop.http1.sockets import close_listening
from kubeloop.pki import CertificateAuthority, IssuedCertificate


@functools.cache
def authority() -> CertificateAuthority:
    """One for the whole run: keys take their time."""
    return CertificateAuthority.create("kubeloop-tests")


@functools.cache
def loopback_certificate() -> IssuedCertificate:
    return authority().issue("loopback", server=True, dns_names=["localhost"], ip_addresses=["127.0.0.1"])


@dataclass(frozen=True)
class Received:
    """One request as it arrived. Header names are in lower case; a header that repeats is joined by commas."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]


@dataclass(frozen=True)
class Reply:
    """What to answer. ``body`` may be a tree, sent as JSON. With ``chunks`` the body is sent in pieces.

    ``end``: ``keep`` completes the answer, ``cut`` drops the connection before its end, ``hang`` waits until the client is gone,
    ``leave`` ends the connection after it, ``shout`` sends everything back in upper case (see ``switched``), ``reset`` drops it with a TCP
    reset, ``tear`` in the middle of a TLS record. ``raw``: these bytes stand for the whole answer, head and all.
    """

    status: int = 200
    body: Any = b""
    headers: dict[str, str] = field(default_factory=dict)
    chunks: Iterable[bytes] | None = None
    end: str = "keep"
    raw: bytes | None = None


def switched(first: bytes = b"", *, stay: bool = True) -> Reply:
    """101, then ``first``; after that what the client sends comes back in upper case, or the connection ends."""
    return Reply(101, first, {"Upgrade": "echo", "Connection": "Upgrade"}, end="shout" if stay else "leave")


#: The connection is dropped where an answer should come.
DROP = Reply(status=0)
#: No answer comes.
SILENCE = Reply(status=0, end="hang")


def status(code: int, reason: str = "", message: str = "", **more: Any) -> Reply:
    """A Kubernetes Status."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
        **more,
    }
    return Reply(code, body)


def frames(*events: tuple[str, dict[str, Any]], end: str = "keep") -> Reply:
    """A watch: one frame a chunk."""
    return Reply(chunks=[json.dumps({"type": kind, "object": obj}).encode() + b"\n" for kind, obj in events], end=end)


class FaultServer:
    """``async with FaultServer(reply, reply) as server``: the last reply stands for all further requests; or ``answer`` decides."""

    def __init__(
        self,
        *script: Reply,
        answer: Callable[[Received], Reply] | None = None,
        tls: bool = True,
        certificate: IssuedCertificate | None = None,
        early_answer: bool = False,
    ) -> None:
        """``early_answer``: each answer is sent after the head of its request, whose body is then read and forgotten."""
        self.script = list(script)
        self.answer = answer
        self.received: list[Received] = []
        self.connections = 0
        self.gone = asyncio.Event()
        """Set when the client left a reply that hangs."""
        self.waiting = asyncio.Event()
        """Set when a reply hangs."""
        self._tls = tls
        self._certificate = certificate
        self._early = early_answer
        self._context: ssl.SSLContext | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._context = server_context(self._certificate or loopback_certificate()) if self._tls else None
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context, backlog=500)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        await close_listening(self._server)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks)

    def rotate(self, certificate: IssuedCertificate) -> None:
        """Show this certificate to new connections."""
        assert self._context is not None
        load(self._context, certificate)

    def config(self, **changes: Any) -> ClusterConfig:
        settings: dict[str, Any] = {
            "name": "faulty",
            "server": f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}",
            "ca": Pem(data=authority().certificate, field="certificate-authority-data") if self._tls else None,
            "credentials": Credentials(token="secret-token", owner='user "tester"'),
            "source": 'cluster "faulty"',
        }
        return ClusterConfig(**{**settings, **changes})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            while (received := await _read(reader, with_body=not self._early)) is not None:
                self.received.append(received)
                reply = self.answer(received) if self.answer else self.script.pop(0) if len(self.script) > 1 else self.script[0]
                await self._reply(reply, reader, writer)
                if self._early:
                    # A server that closed at once would throw its own answer away: what is unread becomes a reset.
                    while await reader.read(1 << 16):
                        pass
                if reply.end != "keep" or not (reply.status or reply.raw):
                    return
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            pass  # the client left, which is what some tests are about
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            # Not abort(): a reset would throw away what the client has not read yet.
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    async def _reply(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if reply.raw is not None:
            writer.write(reply.raw)
            await writer.drain()
        elif reply.status:
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            headers = {"Content-Type": "application/json", **reply.headers}
            if reply.status != 101:
                headers |= {"Transfer-Encoding": "chunked"} if reply.chunks is not None else {"Content-Length": str(len(body))}
            lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
            writer.write("\r\n".join(lines).encode())
            if reply.chunks is None:
                writer.write(body[: len(body) // 2] if reply.end == "cut" else body)
            else:
                for chunk in reply.chunks:
                    writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                    await writer.drain()
                if reply.end == "keep":
                    writer.write(b"0\r\n\r\n")
            await writer.drain()
        if reply.end in ("reset", "tear"):
            _break_off(writer, torn=reply.end == "tear")
        if reply.end == "shout":
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                while data := await reader.read(1 << 16):
                    writer.write(data.upper())
                    await writer.drain()
            self.gone.set()
        if reply.end == "hang":
            self.waiting.set()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await reader.read(1)
            self.gone.set()


def _break_off(writer: asyncio.StreamWriter, *, torn: bool) -> None:
    """End the connection below TLS: nothing says goodbye."""
    below = socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno()))
    try:
        if torn:
            # The head of a record of application data (RFC 8446, section 5.1), and a third of what it promises.
            below.send(b"\x17\x03\x03\x00\x30" + bytes(16))
        else:
            below.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    finally:
        below.close()
    writer.transport.abort()


async def _read(reader: asyncio.StreamReader, *, with_body: bool = True) -> Received | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name = name.lower()
        headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0"))) if with_body else b""
    return Received(method, target, headers, body)


def server_context(certificate: IssuedCertificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load(context, certificate)
    return context


def load(context: ssl.SSLContext, certificate: IssuedCertificate) -> None:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "server.pem"
        file.write_bytes(certificate.certificate + certificate.key)
        context.load_cert_chain(file)
