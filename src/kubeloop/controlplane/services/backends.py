"""Backends: the pods that a Service selects, with the properties that endpoints contain, and the ports on which they serve.

They are read from heads in the cache, so that the pods of a large Service need not be decoded, except for named target ports.
Source: k8s.io/endpointslice (utils.go, util/controller_utils.go, util/trigger_time_tracker.go).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from kubeloop.api.core.v1 import Pod, Service, ServicePort
from kubeloop.cache import Head, Lister
from kubeloop.controller import Predicate, labels_changed, path_changed
from kubeloop.meta import ObjectKey
from kubeloop.meta.selectors import selector_from_labels

#: The annotation with the time of the first change that led to the present endpoints.
TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
#: The label of endpoints whose Service has no cluster IP.
HEADLESS = "service.kubernetes.io/headless"
#: The annotation of Endpoints that old clients used as locks.
LEADER = "control-plane.alpha.kubernetes.io/leader"
#: The index of Services by namespace and one pair of their selector.
SELECTOR_INDEX = "kubeloop.selector"
SELECTOR = "spec.selector"
ADDRESSES, PHASE, NODE_NAME = "status.podIPs[*].ip", "status.phase", "spec.nodeName"
CONDITION_TYPES, CONDITION_STATUSES = "status.conditions[*].type", "status.conditions[*].status"
CONDITION_TIMES = "status.conditions[*].lastTransitionTime"
HOSTNAME, SUBDOMAIN = "spec.hostname", "spec.subdomain"
#: The paths of pods that ``backend_of`` reads.
POD_PATHS = (ADDRESSES, PHASE, NODE_NAME, CONDITION_TYPES, CONDITION_STATUSES, CONDITION_TIMES, HOSTNAME, SUBDOMAIN)


class EndpointsPort(msgspec.Struct, frozen=True):
    """A port of an EndpointSlice or of a subset of Endpoints."""

    name: str
    port: int
    protocol: str
    app_protocol: str | None = None

    def slice_port_dump(self) -> str:
        """Return the dump of this port that upstream hashes to sort the ports of an EndpointSlice: a Go ``EndpointPort`` as text."""
        protocol = f"Protocol:(*v1.Protocol){self.protocol}"
        return f"(v1.EndpointPort){{Name:(*string){self.name} {protocol} Port:(*int32){self.port} {self._app_protocol()}}}"

    def subset_port_dump(self) -> str:
        """Return the dump of this port as a port of an Endpoints subset, such as ``{Name:(string)http Port:(int32)80 ...}``.

        Upstream hashes dumps of Go values to sort ports and subsets. In the dump of a single port ``(v1.EndpointPort)`` comes first.
        """
        return f"{{Name:(string){self.name} Port:(int32){self.port} Protocol:(v1.Protocol){self.protocol} {self._app_protocol()}}}"

    def _app_protocol(self) -> str:
        return f"AppProtocol:(*string){'<nil>' if self.app_protocol is None else self.app_protocol}"


def go_hash(text: str) -> int:
    """Return the 128-bit FNV-1a hash of a text, by which upstream sorts ports and subsets."""
    digest = 0x6C62272E07BB014262B821756295C58D
    for byte in text.encode():
        digest = (digest ^ byte) * 0x13B + ((digest ^ byte) << 88) & (1 << 128) - 1
    return digest


class PodBackend(msgspec.Struct, frozen=True):
    """A pod that a Service selects, with the properties that its endpoint contains."""

    namespace: str
    name: str
    uid: str
    addresses: tuple[str, ...]
    ready: bool
    terminating: bool
    finished: bool
    node: str
    hostname: str
    subdomain: str
    #: When the condition Ready last changed; empty if the pod does not have the condition.
    changed_at: str

    def belongs(self, *, include_terminating: bool) -> bool:
        """Return whether endpoints contain the pod: it has an address, has not finished, and is not terminating (or these are included)."""
        return bool(self.addresses) and not self.finished and (include_terminating or not self.terminating)

    def hostname_in(self, service: Service) -> str:
        """Return the pod's hostname if DNS serves it below the name of a Service, which must be the pod's subdomain; else an empty text."""
        return self.hostname if self.subdomain == service.metadata.name else ""


def backend_of(pod: Head) -> PodBackend:
    """Return the PodBackend for the head of a pod. The informer of pods must store ``POD_PATHS`` in heads."""
    types, statuses, times = pod.value(CONDITION_TYPES), pod.value(CONDITION_STATUSES), pod.value(CONDITION_TIMES)
    ready, changed_at = False, ""
    if "Ready" in types:
        at = types.index("Ready")
        ready = len(statuses) == len(types) and statuses[at] == "True"
        changed_at = times[at] if len(times) == len(types) else ""
    return PodBackend(
        pod.namespace,
        pod.name,
        pod.uid,
        pod.value(ADDRESSES),
        ready,
        pod.deleting,
        pod.value(PHASE) in ("Succeeded", "Failed"),
        pod.value(NODE_NAME) or "",
        pod.value(HOSTNAME) or "",
        pod.value(SUBDOMAIN) or "",
        changed_at,
    )


class BackendReader:
    """Computes the backends of Services, and caches the backends of pods until they change."""

    def __init__(self) -> None:
        self._known: dict[ObjectKey, dict[str, tuple[Head, PodBackend]]] = {}

    def forget(self, service: ObjectKey) -> None:
        """Forget the cached backends of a Service."""
        self._known.pop(service, None)

    def read(self, service: ObjectKey, pods: Iterable[Head]) -> list[PodBackend]:
        """Return the backends of a Service's pods."""
        before = self._known.get(service, {})
        current: dict[str, tuple[Head, PodBackend]] = {}
        for head in pods:
            known = before.get(head.uid)
            current[head.uid] = known if known is not None and known[0] is head else (head, backend_of(head))
        self._known[service] = current
        return [backend for _, backend in current.values()]


#: Matches events of pods that may change the endpoints of a Service.
backend_changed: Predicate = (
    labels_changed
    | path_changed(ADDRESSES)
    | path_changed(PHASE)
    | path_changed(CONDITION_STATUSES)
    | path_changed(CONDITION_TYPES)
    | path_changed(HOSTNAME)
    | path_changed(SUBDOMAIN)
    | Predicate(lambda event: event.old is not None and event.old.deleting != event.head.deleting)
)


def selected_pods(pods: Lister[Pod], service: Service) -> list[Head]:
    """Return the heads of the pods that a Service selects. Labels that pods share in the cache are matched only once."""
    selector = selector_from_labels(service.spec.selector)
    matches: dict[int, bool] = {}
    selected = []
    for head in pods.heads(service.metadata.namespace):
        labels = head.labels
        match = matches.get(id(labels))
        if match is None:
            match = matches[id(labels)] = selector.matches(labels)
        if match:
            selected.append(head)
    return selected


def selector_entry(service: Service) -> list[str]:
    """Return the entry of a Service in ``SELECTOR_INDEX``: one pair of its selector, by which to look up Services that may select a pod."""
    selector = service.spec.selector
    return [_entry(service.metadata.namespace, *min(selector.items()))] if selector else []


#: Matches every event of a Service, and stores the selector in heads of Services.
with_selector_path = Predicate(lambda event: True, (SELECTOR,))  # noqa: ARG005


def services_selecting(services: Lister[Service], pod: Head) -> list[ObjectKey]:
    """Return the keys of the Services that select a pod. The informer of Services must store ``SELECTOR`` in heads."""
    labels = pod.labels
    return [
        ObjectKey("", head.namespace, head.name)
        for name, value in labels.items()
        for head in services.heads_by_index(SELECTOR_INDEX, _entry(pod.namespace, name, value))
        if all(labels.get(key) == wanted for key, wanted in (head.value(SELECTOR) or {}).items())
    ]


def _entry(namespace: str, name: str, value: str) -> str:
    return f"{namespace}/{name}={value}"


def find_port(pod: Pod, port: ServicePort) -> int | None:
    """Return the number of a Service's target port in a pod, or None if no container has a port of that name and protocol."""
    target = port.target_port
    if isinstance(target, int):
        return target
    sidecars = [one for one in pod.spec.init_containers if one.restart_policy == "Always"]
    for container in [*pod.spec.containers, *sidecars]:
        for one in container.ports:
            if one.name == target and (one.protocol or "TCP") == (port.protocol or "TCP"):
                return one.container_port
    return None


class PortFinder:
    """Finds the numbers of a Service's target ports in pods. A pod is decoded only for named ports, and only once: its ports never change.

    Args:
        pods: The cached pods.
    """

    def __init__(self, pods: Lister[Pod]) -> None:
        self._pods = pods
        #: For each Service with named ports: its ports, and the port numbers by uid of the pod.
        self._known: dict[ObjectKey, tuple[tuple[ServicePort, ...], dict[str, tuple[int | None, ...]]]] = {}

    def forget(self, service: ObjectKey) -> None:
        """Drop the records of a Service."""
        self._known.pop(service, None)

    def numbers(self, service: Service, pods: Sequence[Head]) -> Callable[[Head], tuple[int | None, ...]]:
        """Return a function that maps a pod to the numbers of the Service's ports; None for a port that the pod does not have."""
        ports = tuple(service.spec.ports)
        fixed = tuple(one.target_port if isinstance(one.target_port, int) else None for one in ports)
        key = service.object_key("")
        if all(isinstance(one.target_port, int) for one in ports):
            self.forget(key)
            return lambda _: fixed
        before, numbers = self._known.get(key, ((), {}))
        known = numbers if before == ports else {}
        current: dict[str, tuple[int | None, ...]] = {}
        for head in pods:
            found = known.get(head.uid)
            if found is None:
                pod = self._pods.decoded(head)
                found = tuple(find_port(pod, one) for one in ports)
            current[head.uid] = found
        self._known[key] = ports, current
        return lambda head: current[head.uid]


def ports_of(service: Service, numbers: Sequence[int | None]) -> tuple[EndpointsPort, ...]:
    """Return the ports of a Service with their numbers in a pod, in upstream's order; ports that the pod lacks (None) are left out."""
    ports = [
        EndpointsPort(one.name or "", number, one.protocol or "TCP", one.app_protocol)
        for one, number in zip(service.spec.ports, numbers, strict=True)
        if number is not None
    ]
    return sort_slice_ports(ports)


def sort_slice_ports(ports: Iterable[EndpointsPort]) -> tuple[EndpointsPort, ...]:
    """Sort ports in the order of upstream's EndpointSlices."""
    listed = list(ports)
    return tuple(listed if len(listed) < 2 else sorted(listed, key=lambda port: go_hash(port.slice_port_dump())))


def is_headless(service: Service) -> bool:
    """Return whether a Service has no cluster IP."""
    return service.spec.cluster_ip in (None, "", "None")


@lru_cache(maxsize=65536)
def canonical_address(text: str) -> tuple[int, str] | None:
    """Return the family (4 or 6) and the canonical text of an address, or None if it is no address.

    Leading zeros in IPv4 addresses are ignored, as Go's old parser did. Source: k8s.io/utils/net (ParseIPSloppy).
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        parts = text.split(".")
        if len(parts) != 4 or not all(part.isascii() and part.isdigit() and int(part) < 256 for part in parts):
            return None
        return 4, ".".join(str(int(part)) for part in parts)
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return (4, str(mapped)) if mapped is not None else (6, str(address))
    return 4, str(address)


@dataclass(slots=True)
class _Times:
    service: str = ""
    pods: dict[str, str] = field(default_factory=dict)


#: Seconds for each pod of a Service, and at most, for which changes of its pods are batched after a reconcile.
PAUSE_PER_POD, LONGEST_PAUSE = 0.0005, 1.0


class ChangeBatcher:
    """Delays the reconcile of a Service after a change of a pod, so that many changes in a row lead to few reconciles.

    Each reconcile is followed by a pause, which is longer the more pods the Service has, because a reconcile reads all of them. The first
    change after the pause is not delayed.

    Args:
        period: Minimum seconds from each change to the reconcile. 0: only pauses delay reconciles.
    """

    def __init__(self, period: float) -> None:
        self._period = period
        self._until: dict[ObjectKey, float] = {}

    def forget(self, service: ObjectKey) -> None:
        """Drop the records of a Service."""
        self._until.pop(service, None)

    def reconciled(self, service: ObjectKey, pods: int, now: float) -> None:
        """Begin the pause after a reconcile of a Service; ``pods`` is the number of its pods."""
        self._until[service] = now + min(pods * PAUSE_PER_POD, LONGEST_PAUSE)

    def delay(self, service: ObjectKey, now: float) -> float:
        """Return the seconds by which to delay the reconcile after a change of a pod."""
        return max(self._until.get(service, now) - now, self._period)


class TriggerTimes:
    """Remembers for each Service its creation time and the times at which its pods last changed, as the previous reconcile saw them."""

    def __init__(self) -> None:
        self._known: dict[ObjectKey, _Times] = {}

    def forget(self, service: ObjectKey) -> None:
        """Drop the records of a Service."""
        self._known.pop(service, None)

    def earliest_change(self, service: ObjectKey, created: str, backends: Iterable[PodBackend]) -> str:
        """Return the time of the earliest change of a Service and its pods since the previous call, for the annotation ``TRIGGER_TIME``.

        The first call for a Service returns its creation time. Times are texts in UTC with whole seconds, which sort chronologically. The
        call remembers the present times for the next call.

        Args:
            service: The key of the Service.
            created: The creation time of the Service.
            backends: All pods that the Service selects.

        Returns:
            The time; an empty text if nothing has changed.
        """
        before = self._known.get(service)
        pods = {one.name: one.changed_at for one in backends if one.changed_at}
        self._known[service] = _Times(created, pods)
        if before is None:
            return created
        changed = [time for name, time in pods.items() if time > before.pods.get(name, "")]
        if created > before.service:
            changed.append(created)
        return min(changed, default="")
