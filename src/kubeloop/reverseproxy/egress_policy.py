"""The policy on addresses that this server dials for its users: webhooks and servers behind APIServices.

Source: OWASP, "Server-Side Request Forgery Prevention": a user who may create such objects must not reach this machine's network by them.
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
    """The egress policy forbids the address."""


class EgressPolicy:
    """Allows loopback addresses; all addresses if ``anywhere``.

    Guarantees
        The checked address is the dialled address: a name is resolved once, and the connection goes to one of its loopback addresses.

    Not guaranteed
        Protection of other services on this machine's loopback addresses.
    """

    def __init__(self, *, anywhere: bool = False) -> None:
        self.anywhere = anywhere

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None, server_name: str) -> ClientConnection:
        """Open a connection.

        Args:
            host: A name or an address.
            port: Its port.
            tls: None for plain TCP.
            server_name: The name that the certificate must be valid for.


        Raises:
            DestinationNotAllowed: The host has no loopback address.
            OSError: The connection failed; also its subclasses for TLS and timeouts.
            ValueError: The name or port is impossible.
        """
        from kubeloop.http1.dial import open_wire  # not loaded before the first call

        if self.anywhere:
            return await open_wire(host, port, tls, server_name)
        error: OSError | None = None
        for address in await self.addresses(host):
            try:
                return await open_wire(address, port, tls, server_name)
            except ssl.SSLError:
                raise
            except OSError as failed:
                error = failed
        assert error is not None
        raise error

    async def addresses(self, host: str) -> list[str]:
        """Return the loopback addresses of a host, IPv4 first.

        Raises:
            DestinationNotAllowed: It has none.
            OSError: Its name is unknown.
        """
        try:
            ipaddress.ip_address(host)
            addresses = [host]
        except ValueError:
            known = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
            addresses = sorted({str(address[0]) for *_, address in known}, key=lambda one: (":" in one, one))
        near = [one for one in addresses if is_loopback(one)]
        if not near:
            raise DestinationNotAllowed(
                f"{host} is no loopback address, and others are dialled only by a server with --allow-remote-backends"
            )
        return near


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address, also for an IPv4 address in IPv6 form."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped if mapped is not None else ip).is_loopback)
