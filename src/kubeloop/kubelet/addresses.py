"""Addresses of pods: one for each, from a range of the loopback interface."""

from __future__ import annotations

import zlib
from ipaddress import IPv4Address, IPv4Network, ip_network

from kubeloop.meta.errors import ConfigError


class AddressPool:
    """Allocates addresses by pod uid. An address that was released is used again only after all others.

    Example:
        >>> pool = AddressPool(parse_pod_cidr("127.64.0.0/24", "node-1"))
        >>> pool.allocate("uid-1"), pool.allocate("uid-2"), pool.allocate("uid-1")
        ('127.64.0.1', '127.64.0.2', '127.64.0.1')
    """

    def __init__(self, network: IPv4Network) -> None:
        self.network = network
        self._by_uid: dict[str, str] = {}
        self._next = 0

    def allocate(self, uid: str, former: str = "") -> str:
        """Return the address of a pod.

        Args:
            uid: The pod's uid.
            former: The address that it had under an earlier kubelet; it gets that one again if it is free and of this range.

        Raises:
            ConfigError: All addresses are in use.
        """
        if uid in self._by_uid:
            return self._by_uid[uid]
        used = set(self._by_uid.values())
        if former and former not in used and IPv4Address(former) in self.network:
            self._by_uid[uid] = former
            return former
        size = self.network.num_addresses - 2
        for _ in range(size):
            self._next = self._next % size + 1
            address = str(self.network[self._next])
            if address not in used:
                self._by_uid[uid] = address
                return address
        raise ConfigError(f"--pod-cidr {self.network}: all {size} addresses are in use")

    def reserve(self, address: str) -> None:
        """Keep an address from pods, since the node uses it."""
        self._by_uid[f"reserved:{address}"] = address

    def release(self, uid: str) -> None:
        """Free the address of a pod that is gone."""
        self._by_uid.pop(uid, None)


def parse_pod_cidr(text: str, node: str) -> IPv4Network:
    """Return the range of a node's pods.

    Args:
        text: A range as 127.64.0.0/16. Empty: one of 64 ranges by the node's name, so that kubelets of one machine rarely share one.
        node: The node's name.

    Raises:
        ConfigError: The text is no range of loopback addresses.
    """
    if not text:
        return IPv4Network(f"127.{64 + zlib.crc32(node.encode()) % 64}.0.0/16")
    try:
        result = ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(f"--pod-cidr {text}: not a range; write one as 127.64.0.0/16") from None
    if not isinstance(result, IPv4Network) or not result.is_loopback or result.num_addresses < 8:
        raise ConfigError(f"--pod-cidr {text}: the addresses of process pods are of 127.0.0.0/8; write a range as 127.64.0.0/16")
    return result
