"""Addresses for Gateways from a network: each Gateway gets one, and keeps it."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable

from examples.ingress_nginx.gateway.types import Gateway

#: An IPv4 or IPv6 address.
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressPool:
    """Assigns an address of a network to each Gateway.

    A Gateway keeps the address in its status. A new one gets an address that depends on its namespace and name, or the next free one, so
    that a controller that has lost all statuses assigns mostly the same addresses. The first and the last address stay free.

    Args:
        network: The network, such as ``127.1.0.0/16``.

    Raises:
        ValueError: The text is not a network, or it has fewer than four addresses.

    Example:
        >>> pool = AddressPool("127.1.0.0/16")
        >>> pool.assign([])
        {}
    """

    def __init__(self, network: str) -> None:
        self.network = ipaddress.ip_network(network)
        if self.network.num_addresses < 4:
            raise ValueError(f"network {network} has fewer than four addresses; give the Gateways a larger one, such as 127.1.0.0/16")

    def assign(self, gateways: Iterable[Gateway]) -> dict[tuple[str, str], str]:
        """Return the address of each Gateway, by namespace and name. Without a free address a Gateway is absent.

        Addresses that Gateways request in ``spec.addresses`` come first, then those of their statuses. ``gateways``: the oldest first.
        """
        ordered = list(gateways)
        assigned: dict[tuple[str, str], str] = {}
        used: set[str] = set()
        for wishes in (_requested, _remembered):
            for gateway in ordered:
                key = (gateway.metadata.namespace, gateway.metadata.name)
                usable = next((text for text in wishes(gateway) if text not in used and self.contains(text)), None)
                if key not in assigned and usable is not None and (wishes is _requested or not _requested(gateway)):
                    assigned[key] = usable
                    used.add(usable)
        for gateway in ordered:
            key = (gateway.metadata.namespace, gateway.metadata.name)
            if key not in assigned and not _requested(gateway) and (free := self._free_address(key, used)) is not None:
                assigned[key] = free
                used.add(free)
        return assigned

    def contains(self, text: str) -> bool:
        """Report whether a text is an address that this pool may assign."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return address in self.network and address not in (self.network[0], self.network[-1])

    def _free_address(self, key: tuple[str, str], used: set[str]) -> str | None:
        usable = self.network.num_addresses - 2
        start = int.from_bytes(hashlib.sha256("/".join(key).encode()).digest()[:8]) % usable
        for step in range(min(usable, len(used) + 1)):
            text = str(self.network[1 + (start + step) % usable])
            if text not in used:
                return text
        return None


def _requested(gateway: Gateway) -> list[str]:
    return [address.value for address in gateway.spec.addresses if address.type == "IPAddress" and address.value]


def _remembered(gateway: Gateway) -> list[str]:
    return [] if gateway.status is None else [address.value for address in gateway.status.addresses]
