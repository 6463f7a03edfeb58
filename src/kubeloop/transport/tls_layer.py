"""TLS between a socket and a protocol, for many connections: asyncio's own takes 256 KiB of buffer for each, watched or idle.

Source: asyncio.base_events (start_tls) and asyncio.sslproto (SSLProtocol), the same in Python 3.11 to 3.13.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from asyncio.sslproto import SSLProtocol
from typing import cast

#: What TLS gives at a time at most: the content of one record (RFC 8446, section 5.1).
RECORD = 1 << 14
#: What is taken from a socket at a time. More costs memory for each connection: OpenSSL's own buffer grows to the most it ever held.
BUFFER = 1 << 16


class _Shared(threading.local):
    """One buffer for all connections of a thread, as an event loop fills and empties it without doing anything else in between."""

    def __init__(self) -> None:
        self.buffer = bytearray(BUFFER)


_shared = _Shared()


class _Layer(SSLProtocol):
    max_size = RECORD

    def share(self) -> None:
        # What ``get_buffer`` gives to the loop and ``buffer_updated`` reads from, in place of one of its own.
        self._ssl_buffer = _shared.buffer
        self._ssl_buffer_view = memoryview(_shared.buffer)


async def secure(
    below: asyncio.Transport | socket.socket, protocol: asyncio.Protocol, context: ssl.SSLContext, server_name: str, timeout: float
) -> asyncio.Transport:
    """Shake hands over a connected socket, or over a connection that nothing will come on before we write. ``protocol`` is connected then.

    The transport that is given is the one below, without TLS.

    Raises:
        OSError, ssl.SSLError: no agreement, or not within ``timeout`` seconds; ``below`` is ended.
    """
    loop = asyncio.get_running_loop()
    agreed: asyncio.Future[None] = loop.create_future()
    seconds = cast("int", timeout)  # typeshed says int; asyncio takes any number
    # As bytes a plain name is taken as it is; as text ssl would load the tables of international names, 3 ms of a process's start.
    name = cast("str", server_name.encode("ascii")) if server_name.isascii() else server_name
    layer = _Layer(loop, protocol, context, agreed, False, name, ssl_handshake_timeout=seconds)
    layer.share()
    if isinstance(below, socket.socket):
        below, _ = await loop.create_connection(lambda: layer, sock=below)
    else:
        below.set_protocol(layer)
        layer.connection_made(below)
    try:
        await agreed
    except BaseException:
        below.abort()
        raise
    return below
