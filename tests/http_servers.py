"""An aiohttp server of a test, of which nothing is open when its block ends."""

from __future__ import annotations

import asyncio
import ssl
from asyncio.trsock import TransportSocket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class _Server(web.Server):
    """Records the sockets of its connections."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(handler)
        self.sockets: set[TransportSocket] = set()

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        self.sockets.add(transport.get_extra_info("socket"))
        super().connection_made(handler, transport)


@asynccontextmanager
async def https_server(handler: Handler, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Listen on a port of loopback until the block ends; the port.

    The end of the block waits until each socket is closed. asyncio closes them in later turns of the loop, which a test that ends has not.
    """
    server = _Server(handler)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await site.stop()
        await _handshakes_end()
        await runner.cleanup()
        async with asyncio.timeout(10):
            while any(socket.fileno() != -1 for socket in server.sockets):
                await asyncio.sleep(0)


async def _handshakes_end() -> None:
    """Wait for connections in their TLS handshake: aiohttp closes a connection only after it, and asyncio keeps no list of them."""
    shaking = [task for task in asyncio.all_tasks() if "_accept_connection" in getattr(task.get_coro(), "__qualname__", "")]
    if shaking:
        await asyncio.wait(shaking, timeout=10)
