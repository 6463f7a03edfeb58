"""The ranges of cluster IPs and node ports, in the form of kube-apiserver's flags.

Source: kube-apiserver --service-cluster-ip-range and --service-node-port-range; k8s.io/apimachinery pkg/util/net PortRange.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network
from typing import Self

from kubeloop.meta.errors import ConfigError

#: Addresses in the smallest range that kube-apiserver accepts.
_LEAST = 8
_ADDRESSES = IPv4Network("10.0.0.0/24")
_PORTS = re.compile(r"(\d+)(?:([-+])(\d+))?")


@dataclass(frozen=True, slots=True)
class ServiceRanges:
    """The ranges of cluster IPs and node ports. The first and the last address of the network are never allocated."""

    cluster_ips: IPv4Network = _ADDRESSES
    node_ports: range = range(30000, 32768)

    @classmethod
    def parse(cls, cluster_ips: str = "", node_ports: str = "") -> Self:
        """Parse the values of flags: ``10.0.0.0/24``, and ``30000-32767`` or ``30000+2767``. An empty text stands for the default.

        Raises:
            ConfigError: A text is not a range, or a range that this server does not support.
        """
        default = cls()
        return cls(_network(cluster_ips) if cluster_ips else default.cluster_ips, _ports(node_ports) if node_ports else default.node_ports)

    @property
    def own_address(self) -> str:
        """The address of the service ``kubernetes``: the first usable one."""
        return str(self.cluster_ips[1])


def _network(text: str) -> IPv4Network:
    flag = f"--service-cluster-ip-range={text}"
    try:
        result = ip_network(text, strict=False)
    except ValueError:
        raise ConfigError(f"{flag}: not a range; write one as 10.0.0.0/24 (two, for dual stack, are not implemented)") from None
    if not isinstance(result, IPv4Network):
        raise ConfigError(f"{flag}: IPv6 is not implemented; write a range as 10.0.0.0/24")
    if result.num_addresses < _LEAST:
        raise ConfigError(f"{flag}: {result.num_addresses} addresses are too few; take {_LEAST} at least, as in 10.0.0.0/29")
    return result


def _ports(text: str) -> range:
    flag = f"--service-node-port-range={text}"
    match = _PORTS.fullmatch(text)
    if match is None:
        raise ConfigError(f"{flag}: not a range; write one as 30000-32767")
    first, sign, second = int(match[1]), match[2], int(match[3] or 0)
    last = first if not sign else second if sign == "-" else first + second
    if not 1 <= first <= last <= 65535:
        raise ConfigError(f"{flag}: ports go from 1 to 65535, the lower one first")
    return range(first, last + 1)
