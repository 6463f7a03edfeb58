"""A TCP relay before a server, so that a test can cut or stop what goes through it; TLS passes it unread."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Relay:
    """``async with``; then ``port`` leads to the server."""

    def __init__(self, server: str) -> None:
        url = urlsplit(server)
        self._host, self._port = url.hostname or "", url.port or 443
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = asyncio.Event()
        self._open.set()
        self.connections = 0

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Every connection breaks off, in the middle of whatever it carries."""
        for writer in list(self._writers):
            writer.transport.abort()

    def stall(self) -> None:
        """Nothing goes through any more, and nothing ends."""
        self._open.clear()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        self._open.set()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        self.connections += 1
        there: asyncio.StreamWriter | None = None
        try:
            back, there = await asyncio.open_connection(self._host, self._port)
            self._writers.add(there)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, there))
                group.create_task(self._copy(back, writer))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            for one in (writer, there):
                if one is not None:
                    one.transport.abort()
                    self._writers.discard(one)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        writer.transport.abort()
