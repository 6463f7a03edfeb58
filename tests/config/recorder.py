"""A TLS server that records the client's identity: headers, client certificate and server name, of kubectl's requests and of ours alike."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.server import authority


@dataclass(frozen=True)
class RecordedRequest:
    """One request: the parts that identify its user, and how the server was reached."""

    path: str
    shown: tuple[tuple[str, str], ...]
    certificate: str
    server_name: str
    encodings: str

    def header(self, name: str) -> str:
        return next((value for key, value in self.shown if key == name), "")


@dataclass
class Recorder:
    port: int = 0
    asked: list[RecordedRequest] = field(default_factory=list)
    #: Answer 401 to these values of Authorization, or to these common names.
    refuse: set[str] = field(default_factory=set)
    connections: int = 0
    names: dict[object, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        tls: ssl.SSLObject | None = writer.get_extra_info("ssl_object")
        peer = tls.getpeercert() if tls is not None else None
        subject = dict(pair[0] for pair in peer["subject"]) if peer else {}  # type: ignore[misc]  # typeshed says object
        common_name = str(subject.get("commonName", ""))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:] if line)]
                shown = sorted((name, value) for name, value in headers if name == "authorization" or name.startswith("impersonate-"))
                encodings = next((value for name, value in headers if name == "accept-encoding"), "")
                request = RecordedRequest(lines[0].split(" ")[1], tuple(shown), common_name, self.names.get(tls, ""), encodings)
                self.asked.append(request)
                refused = request.header("authorization") in self.refuse or common_name in self.refuse
                writer.write(
                    f"HTTP/1.1 {'401 Unauthorized' if refused else '200 OK'}\r\n"
                    "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}".encode()
                )
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def recorder(*, tls: bool = True) -> AsyncIterator[Recorder]:
    """Its certificate is for 127.0.0.1 and ``api.example``, of ``tests.faults.authority()``; client certificates of that are taken."""
    found = Recorder()
    context = _context(found) if tls else None
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=context)
    try:
        found.port = server.sockets[0].getsockname()[1]
        yield found
    finally:
        server.close()
        found.names.clear()


def _context(recorder: Recorder) -> ssl.SSLContext:
    issued = authority().issue("recorder", server=True, dns_names=["api.example"], ip_addresses=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(cadata=authority().certificate.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "server.pem"
        file.write_bytes(issued.certificate + issued.key)
        context.load_cert_chain(file)

    def named(tls: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        recorder.names[tls] = name or ""

    context.sni_callback = named
    return context
