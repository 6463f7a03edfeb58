"""Subsets of Endpoints: ports with the same addresses are packed into one subset, in upstream's order.

Pure functions.
Source: Kubernetes pkg/api/v1/endpoints/util.go; pkg/controller/endpoint/endpoints_controller.go (truncateEndpoints).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias, cast

from kubeloop.api.core.v1 import EndpointAddress, EndpointPort, EndpointSubset, ObjectReference
from kubeloop.controlplane.services.backends import EndpointsPort, go_hash

#: Maximum number of addresses of Endpoints.
CAPACITY = 1000
#: The annotation of Endpoints that lack addresses because the Service has too many.
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"

#: An address and the uid of its target, because pods with host network share addresses.
_Key: TypeAlias = tuple[str, str | None]


class AddressesByPort:
    """Collects ready and not ready addresses by port. An address that is added as not ready at least once is not ready for the port."""

    def __init__(self) -> None:
        self._addresses: dict[_Key, EndpointAddress] = {}
        self._ready: dict[EndpointsPort | None, dict[_Key, bool]] = {}

    def add(self, port: EndpointsPort | None, address: EndpointAddress, *, ready: bool) -> None:
        """Add an address for a port; ``port`` is None for a Service without ports."""
        key = (address.ip, None if address.target_ref is None else address.target_ref.uid or "")
        self._addresses.setdefault(key, address)
        states = self._ready.setdefault(port, {})
        states[key] = ready and states.get(key, True)

    def subsets(self) -> Iterable[tuple[list[EndpointAddress], list[EndpointAddress], list[EndpointsPort]]]:
        """Yield the ready addresses, not ready addresses and ports of each subset; ports with the same addresses share a subset."""
        shared: dict[tuple[tuple[_Key, bool], ...], list[EndpointsPort]] = {}
        for port, states in self._ready.items():
            ports = shared.setdefault(tuple(sorted(states.items(), key=_order)), [])
            if port is not None:
                ports.append(port)
        for addresses, ports in shared.items():
            ready = [self._addresses[key] for key, is_ready in addresses if is_ready]
            yield ready, [self._addresses[key] for key, is_ready in addresses if not is_ready], ports


def _order(item: tuple[_Key, bool]) -> tuple[bytes, bool, str]:
    """Return a sort key: addresses are sorted by text and then by the target's uid; an address without a target is last."""
    (address, uid), _ = item
    return address.encode(), uid is None, uid or ""


def repack(addresses: AddressesByPort) -> list[EndpointSubset]:
    """Return the subsets for addresses, in upstream's order."""
    packed = [(ready, waiting, _sorted_ports(ports)) for ready, waiting, ports in addresses.subsets()]
    if len(packed) > 1:
        packed.sort(key=lambda subset: go_hash(_subset_text(*subset)))
    return [
        EndpointSubset(addresses=ready, not_ready_addresses=waiting, ports=[_wire_port(port) for port in ports])
        for ready, waiting, ports in packed
    ]


def repacked(subsets: Iterable[EndpointSubset]) -> list[EndpointSubset]:
    """Return subsets of another client, repacked and sorted like upstream's."""
    addresses = AddressesByPort()
    for subset in subsets:
        ports = [EndpointsPort(one.name or "", one.port, one.protocol or "", one.app_protocol) for one in subset.ports]
        listed: list[EndpointsPort | None] = [*ports] or [None]
        for port in listed:
            for address in subset.addresses:
                addresses.add(port, address, ready=True)
            for address in subset.not_ready_addresses:
                addresses.add(port, address, ready=False)
    return repack(addresses)


def _sorted_ports(ports: list[EndpointsPort]) -> list[EndpointsPort]:
    return ports if len(ports) < 2 else sorted(ports, key=lambda port: go_hash(f"(v1.EndpointPort){port.subset_port_dump()}"))


def _wire_port(port: EndpointsPort) -> EndpointPort:
    protocol = cast('Literal["SCTP", "TCP", "UDP"]', port.protocol)
    return EndpointPort(name=port.name or None, port=port.port, protocol=protocol, app_protocol=port.app_protocol)


def _subset_text(ready: Sequence[EndpointAddress], waiting: Sequence[EndpointAddress], ports: Sequence[EndpointsPort]) -> str:
    """Return the dump of a subset that upstream hashes to sort subsets: a Go ``EndpointSubset`` as text."""
    addresses = f"Addresses:([]v1.EndpointAddress){_list(map(_address_text, ready))}"
    others = f"NotReadyAddresses:([]v1.EndpointAddress){_list(map(_address_text, waiting))}"
    listed = f"Ports:([]v1.EndpointPort){_list(port.subset_port_dump() for port in ports)}"
    return f"(v1.EndpointSubset){{{addresses} {others} {listed}}}"


def _list(texts: Iterable[str]) -> str:
    joined = " ".join(texts)
    return f"[{joined}]" if joined else "<nil>"


def _address_text(address: EndpointAddress) -> str:
    node = "<nil>" if address.node_name is None else address.node_name
    target = _target_text(address.target_ref)
    return f"{{IP:(string){address.ip} Hostname:(string){address.hostname or ''} NodeName:(*string){node} TargetRef:{target}}}"


def _target_text(target: ObjectReference | None) -> str:
    if target is None:
        return "(*v1.ObjectReference)<nil>"
    name = f"Kind:(string){target.kind or ''} Namespace:(string){target.namespace or ''} Name:(string){target.name or ''}"
    version = f"APIVersion:(string){target.api_version or ''} ResourceVersion:(string){target.resource_version or ''}"
    return f"(*v1.ObjectReference){{{name} UID:(types.UID){target.uid or ''} {version} FieldPath:(string){target.field_path or ''}}}"


def same_subsets(left: Sequence[EndpointSubset], right: Sequence[EndpointSubset]) -> bool:
    """Return whether two lists of subsets are equal, except for the resource versions of targets."""
    return len(left) == len(right) and all(_same_subset(one, other) for one, other in zip(left, right, strict=True))


def _same_subset(left: EndpointSubset, right: EndpointSubset) -> bool:
    return (
        [_port_contents(one) for one in left.ports] == [_port_contents(one) for one in right.ports]
        and _same_addresses(left.addresses, right.addresses)
        and _same_addresses(left.not_ready_addresses, right.not_ready_addresses)
    )


def _port_contents(port: EndpointPort) -> tuple[object, ...]:
    return port.name or "", port.port, port.protocol or "", port.app_protocol


def _same_addresses(left: Sequence[EndpointAddress], right: Sequence[EndpointAddress]) -> bool:
    return len(left) == len(right) and all(
        one == other or _address_contents(one) == _address_contents(other) for one, other in zip(left, right, strict=True)
    )


def _address_contents(address: EndpointAddress) -> tuple[object, ...]:
    target = address.target_ref
    parts = (
        None
        if target is None
        else [part or "" for part in (target.kind, target.namespace, target.name, target.uid, target.api_version, target.field_path)]
    )
    return address.ip, address.hostname or "", address.node_name, parts


def address_count(subsets: Iterable[EndpointSubset]) -> int:
    """Return the total number of addresses in subsets, both ready and not ready."""
    return sum(len(one.addresses) + len(one.not_ready_addresses) for one in subsets)


def truncate(subsets: Sequence[EndpointSubset], capacity: int) -> tuple[list[EndpointSubset], bool]:
    """Return subsets with at most ``capacity`` addresses, and whether addresses are left out.

    Ready addresses are kept before not ready ones. Each subset keeps a proportional share, rounded up for the first subsets.
    """
    if address_count(subsets) <= capacity:
        return list(subsets), False
    ready = sum(len(one.addresses) for one in subsets)
    cuts_ready = ready > capacity
    room = capacity if cuts_ready else capacity - ready
    total = ready if cuts_ready else sum(len(one.not_ready_addresses) for one in subsets)
    left = room
    result = []
    for one in subsets:
        addresses, waiting = one.addresses, one.not_ready_addresses
        share = min(math.ceil(len(addresses if cuts_ready else waiting) / total * room), left)
        if cuts_ready:
            addresses, waiting = addresses[:share], []
            left -= len(addresses)
        else:
            waiting = waiting[:share]
            left -= len(waiting)
        result.append(EndpointSubset(addresses=addresses, not_ready_addresses=waiting, ports=one.ports))
    return result, True
