"""EndpointSlice controller: writes the slices of Services with a selector.

Source: Kubernetes pkg/controller/endpointslice/endpointslice_controller.go; KEP-752 (EndpointSlice), KEP-1672 (terminating endpoints).
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.api.core.v1 import Node, Pod, Service
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.cache import ByLabel, Head
from kubeloop.controller import KeyController, Predicate, WatchedKind, path_changed
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents
from kubeloop.controlplane.services.backends import (
    CONDITION_STATUSES,
    CONDITION_TYPES,
    POD_PATHS,
    SELECTOR_INDEX,
    PodBackend,
    backend_changed,
    ports_of,
    selector_entry,
    with_selector_path,
)
from kubeloop.controlplane.services.hints import (
    DISABLED,
    ENABLED,
    ZONE,
    add_proportional_hints,
    is_overloaded,
    is_proportional,
    set_hints,
    traffic_distribution,
    zone_ratios,
)
from kubeloop.controlplane.services.service_pods import SelectedPods, ServicePods
from kubeloop.controlplane.services.slice_writer import SliceWriter
from kubeloop.controlplane.services.slices import (
    MANAGED_BY,
    MANAGER,
    SERVICE_NAME,
    EndpointBuilder,
    Family,
    SlicePlan,
    address_types,
    group_by_ports,
    plan_slices,
)
from kubeloop.meta import ApiError, KubeloopError, ObjectKey
from kubeloop.timing import Clock
from kubeloop.workqueue import ExponentialLimiter, Limiter

#: Maximum number of endpoints of a slice.
LIMIT = 100
#: Minimum seconds from another client's change of a slice to the reconcile, so that a burst of changes causes one reconcile.
FOREIGN_CHANGE_DELAY = 1.0
SLICES_INDEX = "kubeloop.service"
_zone_changed = Predicate(lambda event: event.old is None or event.old.labels.get(ZONE) != event.head.labels.get(ZONE))


class EndpointsIncomplete(KubeloopError):
    """The slices of a Service lack pods whose nodes do not exist; the message names the pods."""


class EndpointSliceController(
    KeyController[Service],
    watches=[
        WatchedKind(Pod, to="services_of_pod", predicates=(backend_changed,), paths=POD_PATHS),
        WatchedKind(EndpointSlice, to="service_of_slice"),
        WatchedKind(
            Node, to="overloaded_services", predicates=(_zone_changed | path_changed(CONDITION_STATUSES) | path_changed(CONDITION_TYPES),)
        ),
    ],
    writes=[EndpointSlice],
    predicates=[with_selector_path],
    indexes={Service: {SELECTOR_INDEX: selector_entry}, EndpointSlice: {SLICES_INDEX: ByLabel(SERVICE_NAME)}},
    workers=5,
    name="endpointslice-controller",
):
    """Writes the EndpointSlices of each Service with a selector.

    Guarantees:
        A change of one pod changes one slice; other slices are not written.

    Cost:
        A reconcile reads the heads of the pods of the namespace and the slices of the Service; it decodes no pods, except for named ports.

    Args:
        limit: Maximum number of endpoints of a slice.
        batch_period: Minimum seconds from the change of a pod to the reconcile. Further changes in this time cause no additional reconcile.
    """

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents(component="endpoint-slice-controller")]

    def __init__(self, *, limit: int = LIMIT, batch_period: float = 0.0) -> None:
        self._limit = limit
        self._pods = ServicePods(batch_period)
        self._batch_period = batch_period
        self._writer = SliceWriter()
        #: For Services with proportional hints: numbers of hints by address type and zone.
        self._allocated: dict[ObjectKey, dict[str, dict[str, int]]] = {}

    async def start(self) -> None:
        self._allocated.clear()
        self._pods.start(self.lister(Pod))
        self._endpoints = EndpointBuilder()

    def retry_limiter(self, clock: Clock) -> Limiter[ObjectKey]:  # noqa: ARG002  # no bucket is needed
        """Return a limiter whose first delay is a second, because a reconcile may write many slices."""
        return ExponentialLimiter(1.0, 1000.0)

    def services_of_pod(self, pod: Head) -> list[ObjectKey]:
        """Enqueue the Services that select a pod, with the delays of ``ServicePods``; return no keys."""
        for key, delay in self._pods.delays(self.lister(Service), pod, self.clock.now()):
            self.enqueue(key, delay)
        return []

    def service_of_slice(self, head: Head) -> list[ObjectKey]:
        """Enqueue the Service of a slice that another client changed, with a delay; return no keys."""
        name = head.labels.get(SERVICE_NAME)
        if name and head.labels.get(MANAGED_BY) == MANAGER:
            key = ObjectKey("", head.namespace, name)
            if not self._writer.is_own(key, head, self.lister(EndpointSlice)):
                self.enqueue(key, max(FOREIGN_CHANGE_DELAY, self._batch_period))
        return []

    def overloaded_services(self, _: Head) -> list[ObjectKey]:
        """Return the keys of the Services whose proportional hints overload a zone after a change of nodes."""
        if not self._allocated:
            return []
        ratios = zone_ratios(self.lister(Node).each())
        return [key for key, families in self._allocated.items() if any(is_overloaded(zones, ratios) for zones in families.values())]

    async def reconcile(self, key: ObjectKey) -> None:
        key = ObjectKey("", key.namespace, key.name)
        service = self.lister(Service).get(key.name, key.namespace)
        if service is None:
            for memory in (self._pods, self._endpoints, self._writer):
                memory.forget(key)
            self._allocated.pop(key, None)
            return
        if service.spec.type == "ExternalName" or not service.spec.selector:
            return  # These Services get no endpoints, or users write their endpoints.
        try:
            await self._write(key, service)
        except KubeloopError as error:
            reason = error.status.message if isinstance(error, ApiError) else str(error)
            parts = [f"Error updating Endpoint Slices for Service {key.namespace}/{key.name}", *getattr(error, "__notes__", ()), reason]
            message = ": ".join(parts)
            self.events.warning(service, "FailedToUpdateEndpointSlices", message)
            raise

    async def _write(self, key: ObjectKey, service: Service) -> None:
        pods = self._pods.select(service, self.clock.now())
        existing = self._existing(key)
        self._writer.start(key, existing)
        published, missing = self._published(service, pods)
        numbers = self._pods.port_numbers(service, [head for head, _, _ in published])
        ports_by_numbers = {found: ports_of(service, found) for found in {numbers(head) for head, _, _ in published}}
        ports = [ports_by_numbers[numbers(head)] for head, _, _ in published]
        families = address_types(service)
        problem: ApiError | None = None
        for family in families:
            endpoints = self._endpoints.build(service, family, ((backend, zone) for _, backend, zone in published))
            groups = group_by_ports(zip(ports, endpoints, strict=True))
            plan = plan_slices(service, family, groups, [one for one in existing if one.address_type == family], self._limit)
            self._set_hints(key, service, family, plan)
            plan.recycle(service.metadata.uid)
            plan.set_trigger_time(pods.changed_at)
            try:
                await self._writer.execute(self.client, service, plan)
            except ApiError as error:
                problem = error
        await self._writer.delete(self.client, key, [one for one in existing if one.address_type not in families])
        if problem is not None:
            raise problem
        if missing:
            raise EndpointsIncomplete(_aggregate(missing))

    def _existing(self, key: ObjectKey) -> list[EndpointSlice]:
        """Return the slices of the Service that this controller manages and that are not being deleted."""
        lister = self.lister(EndpointSlice)
        heads = [one for one in lister.heads_by_index(SLICES_INDEX, key.name) if one.namespace == key.namespace and not one.deleting]
        return [lister.decoded(one) for one in heads if one.labels.get(MANAGED_BY) == MANAGER]

    def _published(self, service: Service, pods: SelectedPods) -> tuple[list[tuple[Head, PodBackend, str]], list[str]]:
        """Return the pods for endpoints, each with the zone of its node, and messages about pods that are left out without a node."""
        zones: dict[str, str | None] = {}
        published, missing = [], []
        for head, backend in zip(pods.heads, pods.backends, strict=True):
            if not backend.belongs(include_terminating=True):
                continue
            if backend.node not in zones:
                node = self.lister(Node).head(backend.node)
                zones[backend.node] = None if node is None else node.labels.get(ZONE, "")
            zone = zones[backend.node]
            if zone is None and not service.spec.publish_not_ready_addresses:
                owner = f"{service.metadata.namespace}/{service.metadata.name}"
                missing.append(f"skipping Pod {backend.name} for Service {owner}: Node {backend.node} Not Found")
                continue
            published.append((head, backend, zone or ""))
        return published, missing

    def _set_hints(self, key: ObjectKey, service: Service, family: Family, plan: SlicePlan) -> None:
        if is_proportional(service):
            change = add_proportional_hints(plan, zone_ratios(self.lister(Node).each()))
            if change.allocated is None:
                self._allocated.get(key, {}).pop(family, None)
                self.events.warning(service, DISABLED, f"{change.problem}, addressType: {family}")
                return
            if not self._allocated.get(key):
                self.events.normal(service, ENABLED, f"Topology Aware Hints has been enabled, addressType: {family}")
            self._allocated.setdefault(key, {})[family] = change.allocated
            return
        if self._allocated.pop(key, None):
            self.events.warning(service, DISABLED, f"Topology Aware Hints has been disabled, addressType: {family}")
        set_hints(plan, traffic_distribution(service))


def _aggregate(messages: list[str]) -> str:
    return messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
