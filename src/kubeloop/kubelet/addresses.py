"""Loopback addresses for pods and services, and claims that keep two kubelets or servers of a machine from using the same range."""

from __future__ import annotations

import errno
import logging
import socket
import zlib
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, ip_network
from pathlib import Path
from typing import Self

from kubeloop.meta.errors import ConfigError

_LOG = logging.getLogger("kubeloop.kubelet")

#: Ranges of nodes without ``--pod-cidr`` and of servers without ``--service-cluster-ip-range``: two halves of 127.64.0.0/10.
_POD_RANGES = list(IPv4Network("127.64.0.0/11").subnets(new_prefix=18))
_SERVICE_RANGES = list(IPv4Network("127.96.0.0/11").subnets(new_prefix=16))
#: Abstract sockets with such names stand for ranges in use. The kernel closes them with their process, however it ends.
_SOCKET = "@kubeloop-range:"


class AddressPool:
    """Allocates one address per pod uid. A released address is allocated again only after all others of the range.

    Example:
        >>> pool = AddressPool(IPv4Network("127.64.0.0/24"))
        >>> pool.allocate("uid-1"), pool.allocate("uid-2"), pool.allocate("uid-1")
        ('127.64.0.1', '127.64.0.2', '127.64.0.1')
    """

    def __init__(self, network: IPv4Network) -> None:
        self.network = network
        self._by_uid: dict[str, str] = {}
        self._next = 0

    def allocate(self, uid: str, former: str = "") -> str:
        """Return the address of a pod, allocating one if it has none yet.

        Args:
            uid: The pod's uid.
            former: The pod's address under an earlier kubelet, which is allocated again if it is free and in this range.

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
        """Exclude an address that the node itself uses from allocation."""
        self._by_uid[f"reserved:{address}"] = address

    def release(self, uid: str) -> None:
        """Free the address of a pod; do nothing if the pod has none."""
        self._by_uid.pop(uid, None)


class RangeClaim:
    """An exclusive claim to a range of addresses among the kubelets and servers of this machine. It lasts until ``close`` or process exit.

    Without claims two programs could allocate the same address, and their pods or services would receive each other's connections.

    Args:
        network: The range.

    Raises:
        RangeInUse: The range overlaps an existing claim.
        OSError: The kernel refuses the socket.

    Example:
        >>> with claim_pod_range("", "worker") as first, claim_pod_range("", "worker") as second:
        ...     first.network.overlaps(second.network)
        False
    """

    def __init__(self, network: IPv4Network) -> None:
        self.network = network
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._bind()
        except BaseException:
            self._socket.close()
            raise

    def _bind(self) -> None:
        try:
            self._socket.bind(f"\0{_SOCKET[1:]}{self.network}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise RangeInUse(self.network, self.network) from None
        # After the bind, so that of two programs that start at once at least one sees the other.
        for other in _claimed_ranges():
            if other != self.network and other.overlaps(self.network):
                raise RangeInUse(self.network, other)

    def close(self) -> None:
        """Release the range."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RangeInUse(ConfigError):
    """A range cannot be claimed because it overlaps ``other``, the range of another kubelet or server."""

    def __init__(self, network: IPv4Network, other: IPv4Network) -> None:
        super().__init__(f"{network}: a kubelet or server of this machine uses {other}")
        self.other = other


def _claimed_ranges() -> Iterator[IPv4Network]:
    # Source: proc(5), /proc/net/unix. An @ stands for the null byte with which an abstract name begins.
    for line in Path("/proc/net/unix").read_text().splitlines():
        _, mark, text = line.partition(f" {_SOCKET}")
        if mark:
            yield IPv4Network(text)


def _claim_first(ranges: Iterable[IPv4Network]) -> RangeClaim | None:
    for network in ranges:
        try:
            return RangeClaim(network)
        except RangeInUse as error:
            _LOG.info("%s", error)
    return None


def claim_pod_range(text: str, node: str) -> RangeClaim:
    """Claim the range of a node's pods.

    Args:
        text: A range such as 127.64.0.0/16. Empty: a free one of 128 default ranges; the search begins at a range that depends on the
            node's name, so that a node usually gets the same range again.
        node: The node's name.

    Raises:
        ConfigError: The text is no range of loopback addresses, the range is in use, or all default ranges are.
    """
    if text:
        network = _loopback_range(text)
        try:
            return RangeClaim(network)
        except RangeInUse as error:
            raise ConfigError(f"--pod-cidr {error}; name another range of 127.64.0.0/11, or none") from None
    start = zlib.crc32(node.encode()) % len(_POD_RANGES)
    claim = _claim_first(_POD_RANGES[start:] + _POD_RANGES[:start])
    if claim is None:
        raise ConfigError("all ranges of 127.64.0.0/11 are in use; name another one of 127.0.0.0/8 with --pod-cidr")
    return claim


def claim_service_range(text: str, folder: Path | None = None) -> RangeClaim | None:
    """Claim the range of cluster IPs of a server with process pods.

    Args:
        text: A range. Empty: the first free one of 32 default ranges, from 127.96.0.0/16 on.
        folder: The folder of a server that keeps its range for the next start; None: the server keeps none. With a folder the search begins
            at one of the last 16 default ranges, chosen by the folder's name, so that other servers rarely claim it between two starts.

    Returns:
        The claim; None if the text is no range of loopback addresses, which needs no claim.

    Raises:
        ConfigError: Another program uses the range, or all default ranges are in use.
    """
    if not text:
        half = len(_SERVICE_RANGES) // 2
        start = 0 if folder is None else half + zlib.crc32(bytes(folder)) % half
        claim = _claim_first(_SERVICE_RANGES[start:] + _SERVICE_RANGES[:start])
        if claim is None:
            raise ConfigError("all ranges of 127.96.0.0/11 are in use; name another one of 127.0.0.0/8 with --service-cluster-ip-range")
        return claim
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return None  # The parser of the flag reports it.
    if not isinstance(network, IPv4Network) or not network.is_loopback:
        return None
    try:
        return RangeClaim(network)
    except RangeInUse as error:
        raise ConfigError(f"--service-cluster-ip-range {error}; end that one, or name another range of 127.96.0.0/11") from None


def _loopback_range(text: str) -> IPv4Network:
    try:
        result = ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(f"--pod-cidr {text}: not a range; write one as 127.64.0.0/16") from None
    if not isinstance(result, IPv4Network) or not result.is_loopback or result.num_addresses < 8:
        raise ConfigError(f"--pod-cidr {text}: the addresses of process pods are of 127.0.0.0/8; write a range as 127.64.0.0/16")
    return result
