"""ServiceCIDR controller: protects ranges of Service addresses that are in use, and reports when a range is ready.

Source: Kubernetes pkg/controller/servicecidrs; KEP-1880 (multiple Service CIDRs).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import TypeAlias

from kubeloop.api.meta.v1 import Condition
from kubeloop.api.networking.v1 import IPAddress, ServiceCIDR, ServiceCIDRStatus
from kubeloop.cache import Head
from kubeloop.controller import Controller, Predicate, Result, WatchedKind, add_finalizer, remove_finalizer
from kubeloop.meta import ApiError, NotFound, ObjectKey, ObjectMeta

FINALIZER = "networking.k8s.io/service-cidr-finalizer"
#: Time from the deletion request of a range to its removal, in which all API servers stop allocating from it.
GRACE = timedelta(seconds=10)
_NAME = "service-cidr-controller"
_MANAGED_BY, _ALLOCATOR = "ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io"
_CIDRS = "spec.cidrs"
_BLOCKED = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_is_allocated = Predicate(lambda event: event.head.labels.get(_MANAGED_BY) == _ALLOCATOR)
_with_cidrs = Predicate(lambda event: True, (_CIDRS,))  # noqa: ARG005


def networks(cidrs: Iterable[str]) -> list[Network]:
    """Parse CIDRs; invalid ones are left out."""
    result: list[Network] = []
    for text in cidrs:
        try:
            result.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            continue
    return result


def containing(ranges: Mapping[str, Collection[Network]], item: Network | Address) -> set[str]:
    """Return the names of the ranges that contain a network or an address."""
    return {name for name, some in ranges.items() if any(_contains(one, item) for one in some)}


def overlapping(ranges: Mapping[str, Collection[Network]], some: Iterable[Network]) -> set[str]:
    """Return the names of the ranges that overlap one of the networks."""
    return {name for name, own in ranges.items() for one in own for other in some if one.version == other.version and one.overlaps(other)}


def _contains(network: Network, item: Network | Address) -> bool:
    if isinstance(network, ipaddress.IPv4Network):
        if isinstance(item, ipaddress.IPv4Network):
            return item.subnet_of(network)
        return isinstance(item, ipaddress.IPv4Address) and item in network
    if isinstance(item, ipaddress.IPv6Network):
        return item.subnet_of(network)
    return isinstance(item, ipaddress.IPv6Address) and item in network


def may_end(name: str, ranges: Mapping[str, Collection[Network]], addresses: Iterable[Address]) -> bool:
    """Return whether a ServiceCIDR may be removed: other ranges contain its networks, or it is the only range of no allocated address.

    Args:
        name: The name of the ServiceCIDR.
        ranges: The networks of all ServiceCIDRs by name, including terminating ones.
        addresses: The allocated addresses.
    """
    if all(containing(ranges, one) - {name} for one in ranges[name]):
        return True
    return not any(containing(ranges, one) == {name} for one in addresses)


class ServiceCIDRController(
    Controller[ServiceCIDR],
    predicates=[_with_cidrs],
    watches=[
        WatchedKind(ServiceCIDR, to="overlapping_ranges", paths=(_CIDRS,)),
        WatchedKind(IPAddress, to="ranges_of_address", predicates=(_is_allocated,)),
    ],
    workers=5,
    name=_NAME,
):
    """Sets the finalizer and the condition Ready of each ServiceCIDR.

    A deleted ServiceCIDR is kept while it is the only range of an allocated address.
    """

    def overlapping_ranges(self, head: Head) -> list[ObjectKey]:
        """Return the keys of the ServiceCIDRs that a changed one overlaps, because it may allow or prevent their removal."""
        return [ObjectKey("", "", name) for name in overlapping(self._ranges(), networks(head.value(_CIDRS) or ()))]

    def ranges_of_address(self, head: Head) -> list[ObjectKey]:
        """Return the keys of the ServiceCIDRs that contain an allocated address."""
        address = _address(head.name)
        return [] if address is None else [ObjectKey("", "", name) for name in containing(self._ranges(), address)]

    def _ranges(self) -> dict[str, list[Network]]:
        return {head.name: networks(head.value(_CIDRS) or ()) for head in self.lister(ServiceCIDR).heads()}

    async def reconcile(self, cidr: ServiceCIDR) -> Result | None:
        if cidr.metadata.deletion_timestamp is None:
            await self._set_ready(cidr)
            return None
        heads = self.lister(IPAddress).heads(label_selector=f"{_MANAGED_BY}={_ALLOCATOR}")
        addresses = [address for head in heads if (address := _address(head.name)) is not None]
        if not may_end(cidr.metadata.name, self._ranges(), addresses):
            await self._write(cidr, "False", "Terminating", _BLOCKED)
            return None
        left = (cidr.metadata.deletion_timestamp + GRACE - self.clock.wall()).total_seconds()
        if left > 0:
            return Result(requeue_after=left)
        await remove_finalizer(self.client, cidr, FINALIZER)
        return None

    async def _set_ready(self, cidr: ServiceCIDR) -> None:
        await add_finalizer(self.client, cidr, FINALIZER)
        try:
            await self._write(cidr, "True", "", "Kubernetes Service CIDR is ready")
        except ApiError:
            self.events.warning(cidr, "KubernetesServiceCIDRError", "The ServiceCIDR Status can not be set to Ready=True")
            raise

    async def _write(self, cidr: ServiceCIDR, state: str, reason: str, message: str) -> None:
        """Apply the condition Ready, unless the status already has it."""
        present = next((one for one in cidr.status.conditions if one.type == "Ready"), None)
        if present is not None and (present.status, present.reason, present.message) == (state, reason, message):
            return
        now = self.clock.wall().replace(microsecond=0)
        condition = Condition(type="Ready", status=state, reason=reason, message=message, last_transition_time=now)
        applied = ServiceCIDR(metadata=ObjectMeta(name=cidr.metadata.name), status=ServiceCIDRStatus(conditions=[condition]))
        try:
            await self.client.apply(applied, field_manager=_NAME, force=True, subresource="status")
        except NotFound:
            return


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
