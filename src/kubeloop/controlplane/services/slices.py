"""The decisions of the EndpointSlice controller: which slices to create, update and delete, so that few slices change.

Pure functions over the cached slices and the backends of a Service.
Source: k8s.io/endpointslice (reconciler.go, utils.go).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal, TypeAlias, cast

from kubeloop.api.core.v1 import ObjectReference, Service
from kubeloop.api.discovery.v1 import Endpoint, EndpointConditions, EndpointPort, EndpointSlice
from kubeloop.controlplane.services.backends import (
    HEADLESS,
    TRIGGER_TIME,
    EndpointsPort,
    PodBackend,
    canonical_address,
    is_headless,
    sort_slice_ports,
)
from kubeloop.meta import ObjectKey, ObjectMeta, OwnerReference, Resource

#: The value of ``MANAGED_BY`` on slices of the EndpointSlice controller.
MANAGER = "endpointslice-controller.k8s.io"
MANAGED_BY, SERVICE_NAME = "endpointslice.kubernetes.io/managed-by", "kubernetes.io/service-name"
_RESERVED = frozenset({MANAGED_BY, SERVICE_NAME, HEADLESS})
_VERSIONS: dict[Family, int] = {"IPv4": 4, "IPv6": 6}
_LONGEST_NAME = 253

Family: TypeAlias = Literal["IPv4", "IPv6"]
#: Addresses, hostname, and namespace and name of the target of an endpoint. An endpoint with the same identity is updated in its slice.
Identity: TypeAlias = tuple[tuple[str, ...], str, str, str]
Protocol: TypeAlias = Literal["SCTP", "TCP", "UDP"]
#: The endpoints with the same ports, by identity.
Group: TypeAlias = dict[Identity, Endpoint]
Ports: TypeAlias = tuple[EndpointsPort, ...]


@dataclass(slots=True)
class SlicePlan:
    """The slices of one owner to create, update and delete, and the unchanged slices."""

    create: list[EndpointSlice] = field(default_factory=list)
    update: list[EndpointSlice] = field(default_factory=list)
    delete: list[EndpointSlice] = field(default_factory=list)
    #: Slices that are not written.
    unchanged: list[EndpointSlice] = field(default_factory=list)

    def add(self, other: SlicePlan) -> None:
        """Add the slices of another plan."""
        self.create += other.create
        self.update += other.update
        self.delete += other.delete
        self.unchanged += other.unchanged

    def recycle(self, owner_uid: str) -> None:
        """Replace pairs of a creation and a deletion of the same address type by one update, if ``owner_uid`` owns the slice to delete.

        Slices of an earlier Service of the same name are left to the garbage collector.
        """
        deletions = []
        for old in self.delete:
            new = self.create[-1] if self.create else None
            if new is None or new.address_type != old.address_type or not is_owned(old, owner_uid):
                deletions.append(old)
                continue
            self.create.pop()
            self.update.append(replace_contents(old, new))
        self.delete = deletions

    def set_trigger_time(self, changed_at: str) -> None:
        """Set the annotation ``TRIGGER_TIME`` of the slices to write, or remove it if ``changed_at`` is empty."""
        for one in (*self.create, *self.update):
            if changed_at:
                one.metadata.annotations[TRIGGER_TIME] = changed_at
            else:
                one.metadata.annotations.pop(TRIGGER_TIME, None)


def replace_contents(old: EndpointSlice, new: EndpointSlice) -> EndpointSlice:
    """Replace labels, annotations, owners, endpoints and ports of a cached slice by those of a new slice, and return the cached one.

    The cached slice keeps its name, uid and resource version, which are preconditions of the update.
    """
    metadata, contents = old.metadata, new.metadata
    metadata.labels, metadata.annotations, metadata.owner_references = contents.labels, contents.annotations, contents.owner_references
    old.endpoints, old.ports = new.endpoints, new.ports
    return old


def address_types(service: Service) -> list[Family]:
    """Return the address types of a Service: its IP families, or else the family of its cluster IP, or else both families."""
    families = [family for family in _VERSIONS if family in service.spec.ip_families]
    if families:
        return families
    if is_headless(service):
        return ["IPv4", "IPv6"]
    address = canonical_address(service.spec.cluster_ip or "")
    return ["IPv6" if address is not None and address[0] == 6 else "IPv4"]


def endpoint_of(backend: PodBackend, service: Service, family: Family, zone: str) -> Endpoint | None:
    """Return the endpoint of a pod, or None if the pod has no address of the family.

    Args:
        backend: The pod.
        service: The Service that selects the pod.
        family: ``IPv4`` or ``IPv6``.
        zone: The zone of the pod's node; empty if the node has none.
    """
    version = _VERSIONS[family]
    parsed = [address for text in backend.addresses if (address := canonical_address(text)) is not None]
    addresses = sorted(text for number, text in parsed if number == version)
    if not addresses:
        return None
    publish = bool(service.spec.publish_not_ready_addresses)
    ready = publish or (backend.ready and not backend.terminating)
    return Endpoint(
        addresses=addresses,
        conditions=EndpointConditions(ready=ready, serving=backend.ready, terminating=backend.terminating),
        target_ref=ObjectReference(kind="Pod", namespace=backend.namespace, name=backend.name, uid=backend.uid),
        node_name=backend.node or None,
        zone=zone or None,
        hostname=backend.hostname_in(service) or None,
    )


def identity(endpoint: Endpoint) -> Identity:
    """Return the ``Identity`` of an endpoint: its addresses, its hostname, and namespace and name of its target."""
    target = endpoint.target_ref
    namespace, name = (target.namespace or "", target.name or "") if target is not None else ("", "")
    return tuple(sorted(endpoint.addresses)), endpoint.hostname or "", namespace, name


def group_by_ports(endpoints: Iterable[tuple[Ports, Endpoint | None]]) -> dict[Ports, Group]:
    """Group endpoints by ports. Ports of pods without an endpoint (None) have an empty group."""
    groups: dict[Ports, Group] = {}
    for ports, endpoint in endpoints:
        group = groups.setdefault(ports, {})
        if endpoint is not None:
            group[identity(endpoint)] = endpoint
    return groups


def plan_slices(
    service: Service, family: Family, groups: Mapping[Ports, Group], existing: Sequence[EndpointSlice], limit: int
) -> SlicePlan:
    """Plan the slices of one address type.

    Args:
        service: The Service.
        family: The address type.
        groups: The desired endpoints by ports. The call empties the groups.
        existing: The cached slices of this address type. The call may change them.
        limit: Maximum number of endpoints of a slice.

    Returns:
        The plan. A Service without endpoints has one empty slice.
    """
    plan = SlicePlan()
    by_ports: dict[Ports, list[EndpointSlice]] = {}
    for one in sorted(existing, key=attrgetter("metadata.name")):
        if is_owned(one, service.metadata.uid):
            by_ports.setdefault(ports_of_slice(one), []).append(one)
        else:
            plan.delete.append(one)
    for ports, group in groups.items():
        plan.add(_plan_ports(service, family, ports, group, by_ports.pop(ports, []), limit))
    for superfluous in by_ports.values():
        plan.delete += superfluous
    if len(plan.delete) == len(existing) and not plan.create:
        placeholder = new_slice(service, family, ())
        if len(plan.delete) == 1 and _is_placeholder(plan.delete[0], placeholder):
            plan.unchanged.append(plan.delete.pop())
        else:
            plan.create.append(placeholder)
    return plan


def _plan_ports(service: Service, family: Family, ports: Ports, group: Group, existing: Iterable[EndpointSlice], limit: int) -> SlicePlan:
    """Plan the slices for one set of ports: fill changed slices first, then one unchanged slice with room, then new slices."""
    plan = SlicePlan()
    for one in existing:
        labels, relabelled = slice_labels(one.metadata.labels, service)
        stay, changed = _update_endpoints(one, group)
        if changed and not stay:
            plan.delete.append(one)
        elif changed or relabelled:
            one.endpoints = stay if changed else one.endpoints
            one.metadata.labels = labels
            plan.update.append(one)
        else:
            plan.unchanged.append(one)
    waiting = list(group.values())
    group.clear()
    if waiting:
        plan.update.sort(key=_size, reverse=True)
        for one in plan.update:
            _fill(one, waiting, limit)
    while waiting:
        target = _slice_with_room(plan.unchanged, len(waiting), limit) if len(waiting) < limit else None
        if target is not None:
            plan.unchanged.remove(target)
            plan.update.append(target)
        else:
            target = new_slice(service, family, ports)
            plan.create.append(target)
        _fill(target, waiting, limit)
    return plan


def _update_endpoints(endpoint_slice: EndpointSlice, group: Group) -> tuple[list[Endpoint], bool]:
    """Return the endpoints that stay in a slice, in their desired state without hints, and whether the slice changes.

    These endpoints are removed from ``group``.
    """
    stay: list[Endpoint] = []
    changed = False
    for endpoint in endpoint_slice.endpoints:
        desired = group.pop(identity(endpoint), None)
        if desired is None:
            changed = True
            continue
        changed = changed or not same_endpoint(desired, endpoint)
        stay.append(desired)
    return stay, changed


def same_endpoint(left: Endpoint, right: Endpoint) -> bool:
    """Return whether two endpoints of the same identity are equal, except for hints and the resource version of the target."""
    if left.conditions != right.conditions or left.node_name != right.node_name or left.zone != right.zone:
        return False
    return left.target_ref == right.target_ref or _target(left) == _target(right)


class EndpointBuilder:
    """Builds the endpoints of Services, and caches the endpoints of pods until they change."""

    def __init__(self) -> None:
        self._known: dict[tuple[ObjectKey, Family], tuple[bool, dict[str, tuple[PodBackend, str, Endpoint | None]]]] = {}

    def forget(self, service: ObjectKey) -> None:
        """Forget the cached endpoints of a Service."""
        for family in _VERSIONS:
            self._known.pop((service, family), None)

    def build(self, service: Service, family: Family, backends: Iterable[tuple[PodBackend, str]]) -> list[Endpoint | None]:
        """Return the endpoint of each pod without hints, or None; see ``endpoint_of``.

        Args:
            service: The Service.
            family: The address type.
            backends: The pods, each with the zone of its node.
        """
        key, publish = (service.object_key(), family), bool(service.spec.publish_not_ready_addresses)
        published, known = self._known.get(key, (publish, {}))
        current: dict[str, tuple[PodBackend, str, Endpoint | None]] = {}
        for backend, zone in backends:
            before = known.get(backend.uid)
            if before is not None and before[0] is backend and before[1] == zone and published is publish:
                if before[2] is not None:
                    before[2].hints = None
                current[backend.uid] = before
            else:
                current[backend.uid] = backend, zone, endpoint_of(backend, service, family, zone)
        self._known[key] = publish, current
        return [endpoint for _, _, endpoint in current.values()]


def _target(endpoint: Endpoint) -> tuple[str, ...] | None:
    target = endpoint.target_ref
    if target is None:
        return None
    parts = (target.api_version, target.kind, target.namespace, target.name, target.uid, target.field_path)
    return tuple(part or "" for part in parts)


def _fill(endpoint_slice: EndpointSlice, waiting: list[Endpoint], limit: int) -> None:
    room = limit - len(endpoint_slice.endpoints)
    if room > 0:
        endpoint_slice.endpoints = [*endpoint_slice.endpoints, *waiting[:room]]
        del waiting[:room]


def _slice_with_room(candidates: Iterable[EndpointSlice], count: int, limit: int) -> EndpointSlice | None:
    """Return the fullest slice that has room for ``count`` more endpoints, or None if no slice has."""
    fitting = [one for one in candidates if 0 <= limit - count - len(one.endpoints) < limit]
    return max(fitting, key=_size, default=None)


def _size(endpoint_slice: EndpointSlice) -> int:
    return len(endpoint_slice.endpoints)


def new_slice(service: Service, family: Family, ports: Ports) -> EndpointSlice:
    """Return a new slice of a Service without endpoints."""
    labels, _ = slice_labels({}, service)
    return empty_slice(service, family, ports, labels)


def empty_slice(owner: Resource, family: Family, ports: Ports, labels: dict[str, str]) -> EndpointSlice:
    """Return a slice without endpoints, named after and controlled by ``owner``.

    Args:
        owner: The Service or Endpoints.
        family: The address type.
        ports: The ports.
        labels: The labels.
    """
    name, kind = owner.metadata.name, type(owner).__kind_info__.gvk.kind
    reference = OwnerReference(api_version="v1", kind=kind, name=name, uid=owner.metadata.uid, controller=True, block_owner_deletion=True)
    metadata = ObjectMeta(
        generate_name=f"{name}-" if len(name) < _LONGEST_NAME else name,
        namespace=owner.metadata.namespace,
        labels=labels,
        owner_references=[reference],
    )
    return EndpointSlice(metadata=metadata, address_type=family, ports=[_wire_port(port) for port in ports])


def _wire_port(port: EndpointsPort) -> EndpointPort:
    return EndpointPort(name=port.name, port=port.port, protocol=cast("Protocol", port.protocol), app_protocol=port.app_protocol)


def ports_of_slice(endpoint_slice: EndpointSlice) -> Ports:
    """Return the ports of a slice in upstream's order."""
    return sort_slice_ports(
        EndpointsPort(port.name or "", port.port or 0, port.protocol or "", port.app_protocol) for port in endpoint_slice.ports
    )


def slice_labels(present: Mapping[str, str], service: Service) -> tuple[dict[str, str], bool]:
    """Return the labels for the slices of a Service, and whether unreserved labels differ from the present labels of a slice."""
    copied = {name: value for name, value in service.metadata.labels.items() if name not in _RESERVED}
    changed = {name: value for name, value in present.items() if name not in _RESERVED} != copied
    labels = copied | ({HEADLESS: ""} if is_headless(service) else {})
    return labels | {SERVICE_NAME: service.metadata.name, MANAGED_BY: MANAGER}, changed


def _is_placeholder(endpoint_slice: EndpointSlice, placeholder: EndpointSlice) -> bool:
    return (
        not endpoint_slice.endpoints
        and not endpoint_slice.ports
        and endpoint_slice.address_type == placeholder.address_type
        and endpoint_slice.metadata.labels == placeholder.metadata.labels
    )


def is_owned(endpoint_slice: EndpointSlice, uid: str) -> bool:
    """Return whether the Service with a uid is an owner of a slice."""
    return any(
        owner.uid == uid and owner.kind == "Service" and owner.api_version == "v1" for owner in endpoint_slice.metadata.owner_references
    )
