"""SOCKS 5 on a fresh TCP connection: ask the proxy to connect us on (RFC 1928), with user and password if it wants them (RFC 1929).

Names are resolved by the proxy, for ``socks5://`` and ``socks5h://`` alike, as by Go.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from urllib.parse import unquote

from kubeloop.config.proxies import Proxy
from kubeloop.transport.proxying.refused import ProxyRefusedError

PORT = 1080
_VERSION, _PASSWORD_VERSION = 5, 1
_OPEN, _PASSWORD, _NONE = 0x00, 0x02, 0xFF
_CONNECT = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_MOST = 255
_FAULTS = {
    1: "it failed in general",
    2: "its rules do not allow it",
    3: "the network cannot be reached",
    4: "the host cannot be reached, or its name not be resolved",
    5: "nothing listens there",
    6: "the connection took too long",
    7: "it knows no CONNECT",
    8: "it knows no such kind of address",
}


async def connect_through(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """What is written to ``sock`` afterwards reaches ``host``. Not one byte more is read than belongs to SOCKS.

    Raises:
        ProxyRefusedError: the proxy does not connect us. OSError, EOFError: the connection to it broke.
    """
    user, password = (unquote(part or "").encode() for part in (proxy.url.username, proxy.url.password))
    if len(user) > _MOST or len(password) > _MOST:
        raise ProxyRefusedError(f"the proxy {proxy.shown} cannot be told a user or password of more than {_MOST} bytes; see {proxy.origin}")
    methods = bytes((_OPEN, _PASSWORD)) if user else bytes((_OPEN,))
    await _send(sock, bytes((_VERSION, len(methods))) + methods)
    version, method = await _read(sock, 2)
    if version != _VERSION:
        raise ProxyRefusedError(f"the proxy {proxy.shown} does not speak SOCKS 5; should {proxy.origin} begin with http:// ?")
    if method == _PASSWORD and user:
        await _send(sock, bytes((_PASSWORD_VERSION, len(user))) + user + bytes((len(password),)) + password)
        _, status = await _read(sock, 2)
        if status:
            raise ProxyRefusedError(f"the proxy {proxy.shown} does not accept the user and password in the URL of {proxy.origin}")
    elif method != _OPEN:
        raise ProxyRefusedError(
            f"the proxy {proxy.shown} wants another way to log in; write user and password into the URL of {proxy.origin}: "
            "socks5://USER:PASSWORD@HOST:PORT"
        )
    await _send(sock, bytes((_VERSION, _CONNECT, 0)) + _address(host) + port.to_bytes(2, "big"))
    version, reply, _, kind = await _read(sock, 4)
    if version != _VERSION or kind not in (_IPV4, _NAME, _IPV6):
        raise ProxyRefusedError(f"the proxy {proxy.shown} does not speak SOCKS 5; should {proxy.origin} begin with http:// ?")
    if reply:
        raise ProxyRefusedError(f"the proxy {proxy.shown} does not connect to {host}:{port}: {_FAULTS.get(reply, f'reply {reply}')}")
    # The address that the proxy uses itself: of no use to anybody, but it stands before the server's first byte.
    length = {_IPV4: 4, _IPV6: 16}.get(kind) or (await _read(sock, 1))[0]
    await _read(sock, length + 2)


def _address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            name = host.encode("idna")
        except UnicodeError:  # a part that is empty or too long
            name = b""
        if not 0 < len(name) <= _MOST:
            raise ProxyRefusedError(f'no host can have the name "{host[:80]}"; correct server') from None
        return bytes((_NAME, len(name))) + name
    return bytes((_IPV4 if address.version == 4 else _IPV6,)) + address.packed


async def _send(sock: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(sock, data)


async def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = await asyncio.get_running_loop().sock_recv(sock, size - len(data))
        if not part:
            raise EOFError("it ended the connection")
        data += part
    return data
