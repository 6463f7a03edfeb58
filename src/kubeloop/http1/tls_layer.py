"""TLS between a socket and a protocol, for many connections: asyncio's own layer allocates 256 KiB for each, also for idle connections.

Source: asyncio.base_events (start_tls) and asyncio.sslproto, the same in Python 3.11 to 3.14 (tests/http1/test_tls_layer.py).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from asyncio.sslproto import SSLProtocol
from typing import cast

#: Maximum plain text per read: the content of one record (RFC 8446, section 5.1).
RECORD = 1 << 14
#: Bytes read from a socket at a time. More costs memory for each connection, because OpenSSL's buffer never shrinks.
BUFFER = 1 << 16


class _ReadBuffer(threading.local):
    """The read buffer of all connections of a thread. They can share it, because the event loop fills and empties it in one step."""

    def __init__(self) -> None:
        self.buffer = bytearray(BUFFER)


_shared = _ReadBuffer()


class TlsLayer(SSLProtocol):
    """The protocol between a socket's transport and a protocol of plain text. All layers of a thread share one read buffer."""

    max_size = RECORD

    def share(self) -> None:
        # The buffer for ``get_buffer`` and ``buffer_updated``, instead of one per connection.
        self._ssl_buffer = _shared.buffer
        self._ssl_buffer_view = memoryview(_shared.buffer)


async def secure(
    below: asyncio.Transport | socket.socket, protocol: asyncio.Protocol, context: ssl.SSLContext, server_name: str, timeout: float
) -> asyncio.Transport:
    """Do a client's TLS handshake over a new connection, and then connect ``protocol``.

    Args:
        below: A connected socket, or the transport of a connection on which the peer sends nothing first.
        protocol: Receives the plain text.
        context: The TLS settings.
        server_name: The name to verify.
        timeout: Seconds for the handshake.

    Returns:
        The transport below TLS.

    Raises:
        OSError, ssl.SSLError: The handshake failed, or took longer than ``timeout``; ``below`` is closed.
    """
    loop = asyncio.get_running_loop()
    agreed: asyncio.Future[None] = loop.create_future()
    seconds = cast("int", timeout)  # typeshed says int; asyncio accepts any number
    # A name as bytes is used unchanged; for a text ssl would load the tables of international names, 3 ms of a process's start.
    name = cast("str", server_name.encode("ascii")) if server_name.isascii() else server_name
    layer = TlsLayer(loop, protocol, context, agreed, False, name, ssl_handshake_timeout=seconds)
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


async def secure_accepted(connection: socket.socket, protocol: asyncio.Protocol, context: ssl.SSLContext) -> None:
    """Do a server's TLS handshake over an accepted socket, and then connect ``protocol``.

    Args:
        connection: The socket.
        protocol: Receives the plain text.
        context: The TLS settings.

    Raises:
        OSError: The handshake failed, or took longer than asyncio allows (60 s); the socket is closed.
    """
    loop = asyncio.get_running_loop()
    agreed: asyncio.Future[None] = loop.create_future()
    layer = TlsLayer(loop, protocol, context, agreed, True)
    layer.share()
    transport, _ = await loop.connect_accepted_socket(lambda: layer, connection)
    try:
        await agreed
    except BaseException:
        transport.abort()
        raise
