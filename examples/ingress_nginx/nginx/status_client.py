"""Requests to the status server of an NGINX, over its unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from examples.ingress_nginx.nginx.server import NginxError


class StatusClient:
    """Sends requests to NGINX's status server. Each request has a connection, so that no request reaches a worker that shuts down.

    Args:
        path: The socket.
        timeout: Seconds for one request.
    """

    def __init__(self, path: Path, *, timeout: float = 10) -> None:
        self._path = path
        self._timeout = timeout

    async def get(self, target: str) -> bytes:
        """Return the body of an answer with status 200; raises NginxError."""
        status, body = await self.request("GET", target)
        if status != 200:
            raise NginxError(f"NGINX's status server answers {status} for {target}")
        return body

    async def request(self, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return status and body of an answer.

        Raises:
            NginxError: No answer, or none in time.
        """
        head = f"{method} {target} HTTP/1.0\r\nHost: status\r\nContent-Length: {len(body)}\r\n\r\n"
        try:
            async with asyncio.timeout(self._timeout):
                reader, writer = await self._connect()
                try:
                    writer.write(head.encode() + body)
                    await writer.drain()
                    answer = await reader.read()
                finally:
                    writer.close()
                    with contextlib.suppress(OSError):
                        await writer.wait_closed()
        except TimeoutError:
            raise NginxError(f"NGINX's status server does not answer within {self._timeout:g} seconds") from None
        except OSError as error:
            raise NginxError(f"NGINX's status server does not answer: {error.strerror or error}") from error
        first, _, rest = answer.partition(b"\r\n")
        words = first.split()
        if len(words) < 2 or not words[1].isdigit():
            raise NginxError("NGINX's status server closes the connection without an answer")
        return int(words[1]), rest.partition(b"\r\n\r\n")[2]

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if len(os.fsencode(self._path)) < 100:
            return await asyncio.open_unix_connection(self._path)
        # The path of a socket has at most 107 bytes; the folder's descriptor gives a short name to a long one.
        folder = os.open(self._path.parent, os.O_PATH)
        try:
            return await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{self._path.name}")
        finally:
            os.close(folder)
