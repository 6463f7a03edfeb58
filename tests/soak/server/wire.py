"""A client that costs little: one kept connection, requests one after the other, answers as bytes."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

#: Seconds for one answer; a server that needs longer has failed.
PATIENCE = 60.0


@dataclass(frozen=True)
class Target:
    """Where the server is, and whom it is trusted by."""

    port: int
    authority: str

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority)


class Wire:
    """One user's connection; opened at the first request, and again when the server closed it between two."""

    def __init__(self, target: Target, tls: ssl.SSLContext, token: str) -> None:
        self._target = target
        self._tls = tls
        self._token = token
        self._pair: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: Any = None, content: str = "application/json") -> tuple[int, bytes]:
        """Raises ConnectionError, TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            reader = await self._send(method, path, body, content)
            status, fields = await _head(reader)
            if fields.get("transfer-encoding") == "chunked":
                data = b"".join([chunk async for chunk in _chunks(reader)])
            else:
                data = await reader.readexactly(int(fields.get("content-length", 0)))
        if fields.get("connection") == "close":
            self.close()
        return status, data

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """The chunks of a watch until it ends.

        Raises:
            ConnectionError: it broke off, or was refused; the text has the status.
        """
        reader = await self._send("GET", path, None, "")
        status, fields = await _head(reader)
        if status != 200:
            text = await reader.readexactly(int(fields.get("content-length", 0)))
            raise ConnectionError(f"{status}: {text[:200]!r}")
        async for chunk in _chunks(reader):
            yield chunk

    def close(self) -> None:
        if self._pair is not None:
            self._pair[1].transport.abort()
            self._pair = None

    async def _send(self, method: str, path: str, body: Any, content: str) -> asyncio.StreamReader:
        if self._pair is not None and self._pair[0].at_eof():
            self.close()
        if self._pair is None:
            self._pair = await asyncio.open_connection("127.0.0.1", self._target.port, ssl=self._tls)
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._token}\r\nUser-Agent: soak\r\n"
        if data:
            head += f"Content-Type: {content}\r\nContent-Length: {len(data)}\r\n"
        self._pair[1].write(head.encode() + b"\r\n" + data)
        return self._pair[0]


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    try:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        raise ConnectionError("the connection ended before an answer") from None
    fields = (line.partition(":") for line in lines[1:] if line)
    return int(lines[0].split(" ")[1]), {name.lower(): value.strip().lower() for name, _, value in fields}


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    try:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    except asyncio.IncompleteReadError:
        raise ConnectionError("the stream broke off") from None
