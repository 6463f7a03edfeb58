"""EndpointSliceMirroring controller: copies Endpoints that users write for Services without a selector into EndpointSlices.

Source: Kubernetes pkg/controller/endpointslicemirroring; KEP-752 (EndpointSlice).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from kubeloop.api.core.v1 import EndpointAddress, Endpoints, Service
from kubeloop.api.discovery.v1 import Endpoint, EndpointConditions, EndpointSlice
from kubeloop.cache import ByLabel, Head
from kubeloop.controller import KeyController, WatchedKind, path_changed
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents
from kubeloop.controlplane.services.backends import LEADER, SELECTOR, TRIGGER_TIME, EndpointsPort, canonical_address, sort_slice_ports
from kubeloop.controlplane.services.slice_writer import SliceWriter
from kubeloop.controlplane.services.slices import (
    MANAGED_BY,
    SERVICE_NAME,
    Family,
    Group,
    Ports,
    SlicePlan,
    empty_slice,
    identity,
    ports_of_slice,
    replace_contents,
    same_endpoint,
)
from kubeloop.controlplane.services.subsets import repacked
from kubeloop.meta import ObjectKey
from kubeloop.timing import Clock
from kubeloop.workqueue import ExponentialLimiter, Limiter

#: The value of ``MANAGED_BY`` on mirrored slices.
MIRRORING = "endpointslicemirroring-controller.k8s.io"
SKIP_MIRROR = "endpointslice.kubernetes.io/skip-mirror"
#: Maximum number of mirrored addresses of a subset.
LIMIT = 1000
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_SLICES = "kubeloop.service"
_with_selector = path_changed(SELECTOR)


@dataclass(slots=True)
class Mirrored:
    """The desired contents of the slices that mirror Endpoints, by address type and ports, and the numbers of omitted addresses."""

    groups: dict[tuple[Family, Ports], Group] = field(default_factory=dict)
    invalid: int = 0
    #: Number of invalid addresses and of addresses beyond the limit.
    skipped: int = 0


def mirrored(endpoints: Endpoints, limit: int) -> Mirrored:
    """Return the desired contents of the slices that mirror Endpoints, with at most ``limit`` addresses of each subset."""
    result = Mirrored()
    for subset in repacked(endpoints.subsets):
        ports = sort_slice_ports(EndpointsPort(one.name or "", one.port, one.protocol or "TCP", one.app_protocol) for one in subset.ports)
        for family in ("IPv4", "IPv6"):
            result.groups.setdefault((family, ports), {})
        added = 0
        addresses = [(one, True) for one in subset.addresses] + [(one, False) for one in subset.not_ready_addresses]
        for address, ready in addresses:
            if added >= limit:
                break
            parsed = canonical_address(address.ip)
            if parsed is None:
                result.invalid += 1
                continue
            endpoint = _endpoint(address, parsed[1], ready=ready)
            result.groups["IPv6" if parsed[0] == 6 else "IPv4", ports][identity(endpoint)] = endpoint
            added += 1
        result.skipped += len(addresses) - added
    return result


def _endpoint(address: EndpointAddress, text: str, *, ready: bool) -> Endpoint:
    conditions = EndpointConditions(ready=ready)
    return Endpoint(
        addresses=[text],
        conditions=conditions,
        target_ref=address.target_ref,
        node_name=address.node_name,
        hostname=address.hostname or None,
    )


def plan_mirror(endpoints: Endpoints, desired: Mirrored, existing: Iterable[EndpointSlice], limit: int) -> SlicePlan:
    """Plan the mirrored slices: one for each address type and set of ports.

    Args:
        endpoints: The Endpoints.
        desired: The desired contents of the slices, from ``mirrored``.
        existing: The cached slices that mirror the Endpoints.
        limit: Maximum number of endpoints of a slice.

    Returns:
        The plan; Endpoints without addresses have no slices.
    """
    plan = SlicePlan()
    by_ports: dict[tuple[str, Ports], list[EndpointSlice]] = {}
    for one in sorted(existing, key=attrgetter("metadata.name")):
        by_ports.setdefault((one.address_type, ports_of_slice(one)), []).append(one)
    for (family, ports), group in desired.groups.items():
        present = by_ports.pop((family, ports), [])
        if not group:
            plan.delete += present
            continue
        plan.delete += present[1:]
        if present and _is_current(endpoints, present[0], group):
            plan.unchanged.append(present[0])
            continue
        new = _new_slice(endpoints, family, ports)
        new.endpoints = list(group.values())[:limit]
        if present:
            plan.update.append(replace_contents(present[0], new))
        else:
            plan.create.append(new)
    for superfluous in by_ports.values():
        plan.delete += superfluous
    _recycle(plan)
    return plan


def _recycle(plan: SlicePlan) -> None:
    """Replace each creation and deletion of the same address type by one update."""
    creations = []
    for new in plan.create:
        old = next((one for one in plan.delete if one.address_type == new.address_type), None)
        if old is None:
            creations.append(new)
            continue
        plan.delete.remove(old)
        plan.update.append(replace_contents(old, new))
    plan.create = creations


def _is_current(endpoints: Endpoints, endpoint_slice: EndpointSlice, group: Group) -> bool:
    """Return whether a slice has the desired endpoints, labels, annotations and owner."""
    present = {identity(endpoint): endpoint for endpoint in endpoint_slice.endpoints}
    if present.keys() != group.keys() or not all(same_endpoint(group[key], endpoint) for key, endpoint in present.items()):
        return False
    labels = {name: value for name, value in endpoint_slice.metadata.labels.items() if name not in (MANAGED_BY, SERVICE_NAME)}
    owners = [
        owner for owner in endpoint_slice.metadata.owner_references if owner.kind == "Endpoints" and owner.name == endpoints.metadata.name
    ]
    return (
        labels == endpoints.metadata.labels
        and endpoint_slice.metadata.annotations == _annotations(endpoints)
        and all(owner.uid == endpoints.metadata.uid for owner in owners)
    )


def _annotations(endpoints: Endpoints) -> dict[str, str]:
    return {name: value for name, value in endpoints.metadata.annotations.items() if name not in (TRIGGER_TIME, _APPLIED)}


def _new_slice(endpoints: Endpoints, family: Family, ports: Ports) -> EndpointSlice:
    labels = endpoints.metadata.labels | {SERVICE_NAME: endpoints.metadata.name, MANAGED_BY: MIRRORING}
    new = empty_slice(endpoints, family, ports, labels)
    new.metadata.annotations = _annotations(endpoints)
    return new


def is_mirrored(endpoints: Endpoints | None) -> bool:
    """Return whether Endpoints exist and may be mirrored: they do not opt out, and are no lock of an old leader election."""
    return endpoints is not None and endpoints.metadata.labels.get(SKIP_MIRROR) != "true" and LEADER not in endpoints.metadata.annotations


def _same_name(head: Head) -> list[ObjectKey]:
    return [ObjectKey("", head.namespace, head.name)]


class EndpointSliceMirroringController(
    KeyController[Endpoints],
    watches=[
        WatchedKind(Service, to=_same_name, predicates=(_with_selector,)),
        WatchedKind(EndpointSlice, to="endpoints_of_slice"),
    ],
    writes=[EndpointSlice],
    indexes={EndpointSlice: {_SLICES: ByLabel(SERVICE_NAME)}},
    workers=5,
    name="endpointslice-mirroring-controller",
):
    """Mirrors Endpoints of Services without a selector to EndpointSlices.

    The slices are deleted when the Endpoints or the Service are deleted, or the Service gets a selector.

    Args:
        limit: Maximum number of mirrored addresses of a subset.
        batch_period: Seconds from another client's change of a slice to the reconcile.
    """

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents(component="endpoint-slice-mirroring-controller")]

    def __init__(self, *, limit: int = LIMIT, batch_period: float = 0.0) -> None:
        self._limit = limit
        self._batch_period = batch_period
        self._writer = SliceWriter()

    def retry_limiter(self, clock: Clock) -> Limiter[ObjectKey]:  # noqa: ARG002  # no bucket is needed
        """Return a limiter whose first delay is a second, because a reconcile may write many slices."""
        return ExponentialLimiter(1.0, 100.0)

    def endpoints_of_slice(self, head: Head) -> list[ObjectKey]:
        """Enqueue the Endpoints of a slice that another client changed; return no keys."""
        name = head.labels.get(SERVICE_NAME)
        if name and head.labels.get(MANAGED_BY) == MIRRORING:
            key = ObjectKey("", head.namespace, name)
            if not self._writer.is_own(key, head, self.lister(EndpointSlice)):
                self.enqueue(key, self._batch_period)
        return []

    async def reconcile(self, key: ObjectKey) -> None:
        key = ObjectKey("", key.namespace, key.name)
        endpoints = self.lister(Endpoints).get(key.name, key.namespace)
        service = self.lister(Service).get(key.name, key.namespace)
        existing = self._existing(key)
        if endpoints is None or not is_mirrored(endpoints) or service is None or service.spec.selector:
            await self._writer.delete(self.client, key, existing)
            self._writer.forget(key)
            return
        self._writer.start(key, existing)
        desired = mirrored(endpoints, self._limit)
        self._report(endpoints, desired)
        await self._writer.execute(self.client, endpoints, plan_mirror(endpoints, desired, existing, self._limit))

    def _existing(self, key: ObjectKey) -> Sequence[EndpointSlice]:
        lister = self.lister(EndpointSlice)
        heads = [one for one in lister.heads_by_index(_SLICES, key.name) if one.namespace == key.namespace]
        return [lister.decoded(one) for one in heads if one.labels.get(MANAGED_BY) == MIRRORING]

    def _report(self, endpoints: Endpoints, desired: Mirrored) -> None:
        if desired.invalid:
            message = f"Skipped {desired.invalid} invalid IP addresses when mirroring to EndpointSlices"
            self.events.warning(endpoints, "InvalidIPAddress", message)
        if desired.skipped > desired.invalid:
            limit = f"A max of {self._limit} addresses can be mirrored to EndpointSlices per Endpoints subset."
            self.events.warning(endpoints, "TooManyAddressesToMirror", f"{limit} {desired.skipped} addresses were skipped")
