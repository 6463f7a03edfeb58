"""The policy on the addresses that this server dials on behalf of its users: webhooks and servers behind APIServices.

A user who may create such objects must not reach the network of this machine through them. Source: OWASP, "Server-Side Request Forgery
Prevention".
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
    """Allows connections to loopback addresses, or to all addresses if ``anywhere`` is true.

    Guarantees
        The dialled address is the checked one: a name is resolved once, and the connection goes to one of its loopback addresses.

    Not guaranteed
        Other services on the loopback addresses of this machine are not protected.
    """

    def __init__(self, *, anywhere: bool = False) -> None:
        self.anywhere = anywhere

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None, server_name: str) -> ClientConnection:
        """Open a connection to an allowed address of a host.

        Args:
            host: A name or an address.
            port: The port.
            tls: The TLS settings. None: plain TCP.
            server_name: The name that the certificate must be valid for.

        Raises:
            DestinationNotAllowed: The host has no loopback address.
            OSError: The connection failed. Failures of TLS and timeouts are subclasses.
            ValueError: The name or port is malformed.
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
            DestinationNotAllowed: The host has no loopback address.
            OSError: The host's name cannot be resolved.
        """
        try:
            ipaddress.ip_address(host)
            addresses = [host]
        except ValueError:
            known = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
            addresses = sorted({str(address[0]) for *_, address in known}, key=lambda ip: (":" in ip, ip))
        near = [one for one in addresses if is_loopback(one)]
        if not near:
            raise DestinationNotAllowed(
                f"{host} is not a loopback address, and others are dialled only by a server with --allow-remote-backends"
            )
        return near


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address. An IPv4-mapped IPv6 address is treated as its IPv4 address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped if mapped is not None else ip).is_loopback)
