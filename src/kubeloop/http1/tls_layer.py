"""TLS between a socket and a protocol, for many connections and for much data.

asyncio's own layer allocates 256 KiB for each connection, also for an idle one, and tries to read once more after the last record, at the
price of an exception.

Source: asyncio.base_events (start_tls) and asyncio.sslproto, the same in Python 3.11 to 3.14 (tests/http1/test_tls_layer.py).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from asyncio.sslproto import SSLProtocol, SSLProtocolState
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

#: Maximum plain text per read: the content of one record (RFC 8446, section 5.1).
RECORD = 1 << 14
#: Bytes read from a socket at a time, into the buffer that all connections share: as many whole records as a plain text below glibc's
#: limit of 128 KiB holds, beyond which the kernel maps pages for each allocation.
BUFFER = 7 << 14
#: Bytes that OpenSSL gets at a time, in both directions: its buffers are those of one connection, and never shrink.
SLICE: Final = 1 << 16
_AGAIN: Final = (ssl.SSLWantReadError, ssl.SSLSyscallError)


class _ReadBuffer(threading.local):
    """The read buffer of all connections of a thread. They can share it, because the event loop fills and empties it in one step."""

    def __init__(self) -> None:
        self.buffer = bytearray(BUFFER)


_shared = _ReadBuffer()


class TlsLayer(SSLProtocol):
    """The protocol between a socket's transport and a protocol of plain text. All layers of a thread share one read buffer."""

    max_size = RECORD
    # Attributes of asyncio's class that typeshed does not name.
    _app_protocol: asyncio.Protocol
    _call_eof_received: Callable[[], None]
    _incoming: ssl.MemoryBIO
    _outgoing: ssl.MemoryBIO
    _process_outgoing: Callable[[], None]
    _ssl_writing_paused: bool
    _sslobj: ssl.SSLObject
    _state: SSLProtocolState
    _transport: asyncio.Transport
    _unread = memoryview(b"")
    """Received bytes that OpenSSL does not have yet. They lie in the shared buffer, so they last for one call of ``buffer_updated``."""

    def share(self) -> None:
        # The buffer for ``get_buffer`` and ``buffer_updated``, instead of one per connection.
        self._ssl_buffer = _shared.buffer
        self._ssl_buffer_view = memoryview(_shared.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        if nbytes <= SLICE or self._state is not SSLProtocolState.WRAPPED:
            super().buffer_updated(nbytes)
            return
        self._unread = self._ssl_buffer_view[SLICE:nbytes]
        try:
            super().buffer_updated(SLICE)
        finally:
            unread, self._unread = self._unread, _NOTHING
            if unread:  # the protocol has paused reading
                self._incoming.write(unread)

    def _do_read__copied(self) -> None:
        if self._state is not SSLProtocolState.WRAPPED:
            super()._do_read__copied()  # type: ignore[misc]
            return
        incoming, read = self._incoming, self._sslobj.read
        records: list[bytes] = []
        record = b"?"
        while record:
            # A read returns a whole record. Without bytes in the buffer there is no other one.
            if not incoming.pending and not self._feed():
                break
            try:
                record = read(RECORD)
            except _AGAIN:  # the rest of the record has not arrived
                if not self._feed():
                    break
            else:
                if record:
                    records.append(record)
        if records:
            self._app_protocol.data_received(records[0] if len(records) == 1 else b"".join(records))
        if not record:  # close_notify
            self._call_eof_received()
            self._start_shutdown()

    def _feed(self) -> bool:
        """Give OpenSSL the next received bytes. Return whether there were any."""
        unread = self._unread
        if not unread:
            return False
        self._incoming.write(unread[:SLICE])
        self._unread = unread[SLICE:]
        return True

    def _do_write(self) -> None:
        if self._write_buffer_size <= SLICE or self._ssl_writing_paused:
            super()._do_write()  # type: ignore[misc]
            return
        backlog: deque[bytes | memoryview] = cast("Any", self._write_backlog)
        pieces = []
        data = _NOTHING
        try:
            while backlog:
                data = memoryview(backlog.popleft())
                while data:
                    count = self._sslobj.write(data[:SLICE])
                    self._write_buffer_size -= count
                    data = data[count:]
                    pieces.append(self._outgoing.read())
        except _AGAIN:
            backlog.appendleft(data)
        if pieces:
            # Not writelines: in Python 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1 it never pauses the writer (CVE-2024-12254).
            self._transport.write(b"".join(pieces))
        self._process_outgoing()


_NOTHING: Final = memoryview(b"")


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
