"""DNS records of services and pods. Pure: it computes records from a view of the cluster, and handles no DNS messages.

Source: Kubernetes DNS-Based Service Discovery 1.1.0 (github.com/kubernetes/dns docs/specification.md); CoreDNS plugin/kubernetes, which
decides where the specification leaves room (which names exist, ports in SRV queries, pods by address without a check).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Protocol

from kubeloop.kubelet.container_spec import DOMAIN
from kubeloop.types import JSONObject

#: The version of the specification, which the TXT record ``dns-version`` returns.
SPECIFICATION = "1.1.0"
_ZONE = tuple(DOMAIN.split("."))
_REVERSE = (("in-addr", "arpa"), ("ip6", "arpa"))
#: The server's own name, and the mailbox of the zone's SOA record.
NAME_SERVER, MAILBOX = f"ns.dns.{DOMAIN}", f"hostmaster.{DOMAIN}"


@dataclass(frozen=True)
class ServiceEndpoint:
    """An endpoint of a service: its address, its host name, and its ports, each a tuple of name, protocol and number."""

    address: str
    hostname: str = ""
    ports: tuple[tuple[str, str, int], ...] = ()

    @property
    def label(self) -> str:
        """The DNS label of the endpoint below the name of its service: its host name, or its address with dashes."""
        return self.hostname or self.address.replace(".", "-").replace(":", "-")


#: The ports of an endpoint without ports: address records exist, SRV records do not.
NO_PORTS = (("", "TCP", -1),)


class ServiceView(Protocol):
    """The services and endpoints of a cluster that ``ClusterRecords`` reads."""

    def service(self, namespace: str, name: str) -> JSONObject | None:
        """Return a service, or None if it does not exist."""

    def endpoints(self, namespace: str, name: str) -> Iterable[ServiceEndpoint]:
        """Return the ready endpoints of a service."""

    def by_address(self, address: str) -> Iterable[tuple[str, str, ServiceEndpoint | None]]:
        """Return namespace, name and endpoint of each service with a ready endpoint, or a cluster IP (endpoint None), at an address."""


@dataclass(frozen=True)
class DnsRecord:
    """A DNS record: the domain name that it belongs to, its type, and its data in the format of a zone file."""

    name: str
    kind: str
    data: str


@dataclass
class Lookup:
    """The result of a DNS query: whether the name exists, its records, and address records of the names in these records."""

    exists: bool = True
    records: list[DnsRecord] = field(default_factory=list)
    additional: list[DnsRecord] = field(default_factory=list)


@dataclass(frozen=True)
class _Target:
    """An address and port of a service: ``name`` is the target of SRV records; a negative port has no SRV record."""

    name: str
    address: str
    port: int


class ClusterRecords:
    """Answers queries for names of the cluster.

    Args:
        view: Services and endpoints.
        address: The address of the DNS server itself.

    Example:
        >>> ClusterRecords(view, "127.64.0.1").find("web.shop.svc.cluster.local", "A").records
        [DnsRecord(name='web.shop.svc.cluster.local', kind='A', data='127.96.0.7')]
    """

    def __init__(self, view: ServiceView, address: str) -> None:
        self._view = view
        self._address = address

    def find(self, name: str, kind: str) -> Lookup | None:
        """Return the records of a name.

        Args:
            name: The name in lower case, without the dot at its end.
            kind: The type of the records, as ``A``.

        Returns:
            The records; None: the name belongs to no zone of the cluster.
        """
        labels = tuple(name.split("."))
        if labels[-2:] in _REVERSE:
            return self._reverse(name, labels, kind)
        if labels[-len(_ZONE) :] != _ZONE:
            return None
        base = labels[: -len(_ZONE)]
        if not base:
            records = [DnsRecord(name, "NS", f"{NAME_SERVER}.")] if kind == "NS" else []
            return Lookup(True, records, _addresses(NAME_SERVER, [self._address], "A") if records else [])
        if base == ("dns-version",):
            return Lookup(True, [DnsRecord(name, "TXT", f'"{SPECIFICATION}"')] if kind == "TXT" else [])
        if base == ("ns", "dns"):
            return Lookup(True, _addresses(name, [self._address], kind))
        if base[-1] == "svc":
            return self._service(name, base[:-1], kind)
        if base[-1] == "pod":
            return _pod(name, base[:-1], kind)
        return Lookup(exists=False)

    # ------------------------------------------------------------------------------------------------------------------- services

    def _service(self, name: str, labels: Sequence[str], kind: str) -> Lookup:
        if len(labels) < 2:
            return Lookup()  # the zone "svc" and the names of namespaces exist, and have no records
        if len(labels) > 4:
            return Lookup(exists=False)
        service_name, namespace = labels[-2:]
        service = self._view.service(namespace, service_name)
        if service is None:
            return Lookup(exists=False)
        spec, full = service.get("spec") or {}, f"{service_name}.{namespace}.svc.{DOMAIN}"
        if spec.get("type") == "ExternalName":
            external = str(spec.get("externalName") or "").rstrip(".")
            if len(labels) > 2 or not external or _is_address(external):
                return Lookup(exists=False)
            return Lookup(True, [DnsRecord(name, "CNAME", f"{external}.")])
        port, protocol = (_stripped(labels[0]), _stripped(labels[1])) if len(labels) == 4 else ("", "")
        if len(labels) == 3 or spec.get("clusterIP") == "None":
            label = labels[0] if len(labels) == 3 else ""
            targets = self._endpoint_targets(namespace, service_name, full, label, port, protocol)
        else:
            targets = _cluster_targets(spec, full, port, protocol)
        if not targets:
            return Lookup(exists=False)
        if kind == "SRV":
            return _srv(name, targets)
        return Lookup(True, _addresses(name, [target.address for target in targets], kind))

    def _endpoint_targets(self, namespace: str, service: str, full: str, label: str, port: str, protocol: str) -> list[_Target]:
        return [
            _Target(f"{endpoint.label}.{full}", endpoint.address, number)
            for endpoint in self._view.endpoints(namespace, service)
            if not label or endpoint.label.lower() == label
            for port_name, port_protocol, number in endpoint.ports
            if _matches(port, port_name, protocol, port_protocol)
        ]

    # -------------------------------------------------------------------------------------------------------------------- reverse

    def _reverse(self, name: str, labels: Sequence[str], kind: str) -> Lookup | None:
        address = _reversed_address(labels)
        if address is None:
            return None
        names = []
        for namespace, service, endpoint in self._view.by_address(address):
            full = f"{service}.{namespace}.svc.{DOMAIN}."
            names.append(full if endpoint is None else f"{endpoint.label}.{full}")
        if names:
            return Lookup(True, [DnsRecord(name, "PTR", target) for target in dict.fromkeys(names)] if kind == "PTR" else [])
        # No other server knows names of loopback addresses of this cluster.
        return Lookup(exists=False) if ip_address(address).is_loopback else None


def _pod(name: str, labels: Sequence[str], kind: str) -> Lookup:
    if len(labels) < 2:
        return Lookup()
    text = labels[0].replace("-", ".") if labels[0].count("-") == 3 and "--" not in labels[0] else labels[0].replace("-", ":")
    if len(labels) > 2 or not _is_address(text):
        return Lookup(exists=False)
    return Lookup(True, _addresses(name, [text], kind))


def _cluster_targets(spec: JSONObject, full: str, port: str, protocol: str) -> list[_Target]:
    return [
        _Target(full, address, one["port"])
        for one in spec.get("ports") or ()
        if _matches(port, one.get("name") or "", protocol, one.get("protocol") or "TCP")
        for address in spec.get("clusterIPs") or [spec.get("clusterIP") or ""]
        if _is_address(address)
    ]


def _matches(port: str, port_name: str, protocol: str, port_protocol: str) -> bool:
    return (not port or port == port_name.lower()) and (not protocol or protocol == port_protocol.lower())


def _srv(name: str, targets: Sequence[_Target]) -> Lookup:
    pairs = list(dict.fromkeys((target.port, target.name) for target in targets if target.port >= 0))
    if not pairs:
        return Lookup()
    weight = max(1, 100 // len(pairs))
    records = [DnsRecord(name, "SRV", f"0 {weight} {port} {target}.") for port, target in pairs]
    additional: dict[DnsRecord, None] = {}
    for target in targets:
        for kind in ("A", "AAAA"):
            additional |= dict.fromkeys(_addresses(target.name, [target.address], kind))
    return Lookup(True, records, list(additional))


def _addresses(name: str, addresses: Iterable[str], kind: str) -> list[DnsRecord]:
    version = {"A": 4, "AAAA": 6}.get(kind)
    return [DnsRecord(name, kind, address) for address in dict.fromkeys(addresses) if ip_address(address).version == version]


def _stripped(label: str) -> str:
    return label.removeprefix("_")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _reversed_address(labels: Sequence[str]) -> str | None:
    """Return the address of a name below in-addr.arpa or ip6.arpa; None if the name stands for no address."""
    parts = list(reversed(labels[:-2]))
    if labels[-2] == "in-addr":
        text = ".".join(parts)
    elif len(parts) == 32 and all(len(part) == 1 for part in parts):
        digits = "".join(parts)
        text = ":".join(digits[start : start + 4] for start in range(0, 32, 4))
    else:
        return None
    return str(ip_address(text)) if _is_address(text) else None
