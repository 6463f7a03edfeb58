"""Listening ends without losing what was just accepted."""

from __future__ import annotations

import asyncio
import gc
import socket

import pytest

from kubeloop.http1.sockets import close_listening


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_that_was_accepted_in_the_same_turn_is_served_and_closed(turns: int) -> None:
    """Else its socket is left to the garbage collector, which the test run takes for a fault."""
    served: list[bytes] = []
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(await reader.read())
        writer.close()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        client.sendall(b"here")
        for _ in range(turns):
            await asyncio.sleep(0)
        await close_listening(server)
        gc.collect()
    if served or server.is_serving():
        await asyncio.wait_for(ended.wait(), 10)
    for _ in range(4):
        await asyncio.sleep(0)
    gc.collect()
    assert server.sockets == ()
