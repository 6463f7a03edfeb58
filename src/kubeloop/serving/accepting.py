"""Stops listening without losing a connection that has just been accepted.

``asyncio.Server.close`` refuses a transport to a connection that was accepted in the same turn of the loop, and its socket stays open.
"""

from __future__ import annotations

import asyncio


def stop_accepting(server: asyncio.Server) -> None:
    """Accept no further connection; the sockets stay open, so clients wait. Call ``server.close()`` a turn of the loop later."""
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())


async def close_listening(server: asyncio.Server) -> None:
    """Close the listening sockets; accepted connections stay, waiting ones are refused."""
    stop_accepting(server)
    # Not after the wait: a cancellation of the caller would leave the sockets open.
    asyncio.get_running_loop().call_soon(server.close)
    await asyncio.sleep(0)
