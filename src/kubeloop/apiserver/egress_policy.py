"""Which addresses this server dials for whoever may write configurations: webhooks and servers behind APIServices.

Source: OWASP, "Server-Side Request Forgery Prevention": who may create such objects must not thereby see this machine's network.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeloop.http1.client_connection import ClientConnection


class DestinationNotAllowed(OSError):
    """The address is none that this server dials."""


class EgressPolicy:
    """Loopback addresses only, unless ``anywhere``.

    Guarantees
        What is dialled is what was looked at: a name is resolved once, and the connection goes to one of its addresses that is loopback.

    Not guaranteed
        That services of this machine which listen on loopback are kept from whoever may write configurations.
    """

    def __init__(self, *, anywhere: bool = False) -> None:
        self.anywhere = anywhere

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None, server_name: str) -> ClientConnection:
        """A connection to ``host``, whose certificate must be valid for ``server_name``.

        Raises:
            DestinationNotAllowed: the host has no loopback address.
            OSError, ssl.SSLError, TimeoutError, ValueError: there is no connection.
        """
        from kubeloop.http1.dial import open_wire  # a server that dials nobody starts without it

        if self.anywhere:
            return await open_wire(host, port, tls, server_name)
        fault: OSError | None = None
        for address in await self.addresses(host):
            try:
                return await open_wire(address, port, tls, server_name)
            except ssl.SSLError:
                raise
            except OSError as failed:
                fault = failed
        assert fault is not None
        raise fault

    async def addresses(self, host: str) -> list[str]:
        """The loopback addresses of a host, IPv4 first.

        Raises:
            DestinationNotAllowed: it has none.
            OSError: its name is unknown.
        """
        try:
            ipaddress.ip_address(host)
            found = [host]
        except ValueError:
            known = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found = sorted({str(address[0]) for *_, address in known}, key=lambda one: (":" in one, one))
        near = [one for one in found if is_loopback(one)]
        if not near:
            raise DestinationNotAllowed(
                f"{host} is no loopback address, and others are dialled only by a server with --allow-remote-backends"
            )
        return near


def is_loopback(address: str) -> bool:
    """Whether it is this machine itself, also written as an IPv6 address that holds an IPv4 one."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped if mapped is not None else ip).is_loopback)
