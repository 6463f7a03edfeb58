"""Ends listening without losing a connection that has just been accepted.

``asyncio.Server.close`` refuses a transport to a connection that was accepted in the same turn of the loop, and nobody closes its socket.
"""

from __future__ import annotations

import asyncio


def stop_accepting(server: asyncio.Server) -> None:
    """Take no further connection; the sockets listen on, so clients wait. ``server.close()`` is due, a turn of the loop later."""
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())


async def close_listening(server: asyncio.Server) -> None:
    """Close the listening sockets; connections that were accepted stay, and those that nobody accepted are refused."""
    stop_accepting(server)
    # Not after the wait: a cancellation of the caller would leave the sockets open.
    asyncio.get_running_loop().call_soon(server.close)
    await asyncio.sleep(0)
