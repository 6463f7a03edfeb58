"""Endpoints controller: writes the Endpoints of Services with a selector, for clients that do not read EndpointSlices.

Source: Kubernetes pkg/controller/endpoint/endpoints_controller.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeloop.api.core.v1 import EndpointAddress, Endpoints, ObjectReference, Pod, Service
from kubeloop.cache import EventType, Head
from kubeloop.client import DeleteOptions
from kubeloop.controller import KeyController, Predicate, WatchedKind, to_same_name
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents
from kubeloop.controlplane.services.backends import (
    HEADLESS,
    LEADER,
    POD_PATHS,
    SELECTOR_INDEX,
    TRIGGER_TIME,
    EndpointsPort,
    PodBackend,
    backend_changed,
    canonical_address,
    is_headless,
    selector_entry,
    with_selector_path,
)
from kubeloop.controlplane.services.service_pods import SelectedPods, ServicePods
from kubeloop.controlplane.services.subsets import (
    CAPACITY,
    OVER_CAPACITY,
    AddressesByPort,
    repack,
    repacked,
    same_subsets,
    truncate,
)
from kubeloop.meta import ApiError, Conflict, NotFound, ObjectKey, ObjectMeta

MANAGED_BY, MANAGER = "endpoints.kubernetes.io/managed-by", "endpoint-controller"
_LEADER_PATH = f'metadata.annotations["{LEADER}"]'
_deleted = Predicate(lambda event: event.type is EventType.DELETED, (_LEADER_PATH,))


class EndpointsController(
    KeyController[Service],
    watches=[
        WatchedKind(Pod, to="services_of_pod", predicates=(backend_changed,), paths=POD_PATHS),
        WatchedKind(Endpoints, to=to_same_name, predicates=(_deleted,)),
    ],
    writes=[Endpoints],
    predicates=[with_selector_path],
    indexes={Service: {SELECTOR_INDEX: selector_entry}},
    workers=5,
    name="endpoints-controller",
):
    """Writes the Endpoints of each Service with a selector, and deletes Endpoints of deleted Services.

    When it starts, it also deletes Endpoints that never had a Service, except for locks of old leader elections.

    Args:
        batch_period: Minimum seconds from the change of a pod to the reconcile. Further changes in this time cause no additional reconcile.
    """

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents(component="endpoint-controller")]

    def __init__(self, *, batch_period: float = 0.0) -> None:
        self._pods = ServicePods(batch_period)

    async def start(self) -> None:
        self._pods.start(self.lister(Pod))
        for head in self.lister(Endpoints).heads():
            if head.value(_LEADER_PATH) is None:
                self.enqueue(ObjectKey("", head.namespace, head.name))

    def services_of_pod(self, pod: Head) -> list[ObjectKey]:
        """Enqueue the Services that select a pod, with the delays of ``ServicePods``; return no keys."""
        for key, delay in self._pods.delays(self.lister(Service), pod, self.clock.now()):
            self.enqueue(key, delay)
        return []

    async def reconcile(self, key: ObjectKey) -> None:
        key = ObjectKey("", key.namespace, key.name)
        service = self.lister(Service).get(key.name, key.namespace)
        if service is None:
            self._pods.forget(key)
            await self._delete(key)
        elif service.spec.type != "ExternalName" and service.spec.selector:
            await self._write(key, service)

    async def _delete(self, key: ObjectKey) -> None:
        head = self.lister(Endpoints).head(key.name, key.namespace)
        options = None if head is None else DeleteOptions(uid=head.uid)
        try:
            await self.client.delete(Endpoints, key.name, namespace=key.namespace, options=options)
        except (NotFound, Conflict):
            return

    async def _write(self, key: ObjectKey, service: Service) -> None:
        pods = self._pods.select(service, self.clock.now())
        present = self.lister(Endpoints).get(key.name, key.namespace)
        desired, truncated = truncate(repack(self._addresses(service, pods)), CAPACITY)
        # Upstream writes Endpoints above the capacity in every reconcile. Here an equal result is never written.
        if (
            present is not None
            and _is_current(present, service, truncated=truncated)
            and (same_subsets(present.subsets, desired) or same_subsets(repacked(present.subsets), desired))
        ):
            return
        endpoints = present or Endpoints(metadata=ObjectMeta(name=key.name, namespace=key.namespace))
        endpoints.subsets = desired
        headless = {HEADLESS: ""} if is_headless(service) else {}
        endpoints.metadata.labels = _copied_labels(service) | headless | {MANAGED_BY: MANAGER}
        annotations = endpoints.metadata.annotations
        for name, value in ((TRIGGER_TIME, pods.changed_at), (OVER_CAPACITY, "truncated" if truncated else "")):
            if value:
                annotations[name] = value
            else:
                annotations.pop(name, None)
        await self._save(service, endpoints, exists=present is not None)

    async def _save(self, service: Service, endpoints: Endpoints, *, exists: bool) -> None:
        name = f"{service.metadata.namespace}/{service.metadata.name}"
        try:
            await (self.client.update(endpoints) if exists else self.client.create(endpoints))
        except ApiError as error:
            if not exists and error.has_cause("NamespaceTerminating"):
                return
            reason, task = (
                ("FailedToUpdateEndpoint", f"update endpoint {name}")
                if exists
                else ("FailedToCreateEndpoint", f"create endpoint for service {name}")
            )
            self.events.warning(endpoints, reason, f"Failed to {task}: {error.status.message}")
            raise

    def _addresses(self, service: Service, pods: SelectedPods) -> AddressesByPort:
        """Return the addresses of the pods by port of the Service."""
        publish = bool(service.spec.publish_not_ready_addresses)
        published = [
            (head, backend, address)
            for head, backend in zip(pods.heads, pods.backends, strict=True)
            if backend.belongs(include_terminating=publish) and (address := _address(service, backend)) is not None
        ]
        ports = service.spec.ports
        result = AddressesByPort()
        if not ports:
            if service.spec.cluster_ip == "None":
                for _, backend, address in published:
                    result.add(None, address, ready=publish or backend.ready)
            return result
        numbers = self._pods.port_numbers(service, [head for head, _, _ in published])
        for head, backend, address in published:
            for port, number in zip(ports, numbers(head), strict=True):
                if number is not None:
                    target = EndpointsPort(port.name or "", number, port.protocol or "TCP", port.app_protocol)
                    result.add(target, address, ready=publish or backend.ready)
        return result


def _address(service: Service, backend: PodBackend) -> EndpointAddress | None:
    """Return the first address of a pod in the first IP family of the Service, or None if the pod has no such address."""
    parsed = [address for text in backend.addresses if (address := canonical_address(text)) is not None]
    version = 4
    if service.spec.ip_families:
        version = 6 if service.spec.ip_families[0] == "IPv6" else 4
    elif not is_headless(service):
        cluster_ip = canonical_address(service.spec.cluster_ip or "")
        version = 4 if cluster_ip is None else cluster_ip[0]
    elif parsed:
        version = parsed[0][0]
    text = next((text for number, text in parsed if number == version), None)
    if text is None:
        return None
    target = ObjectReference(kind="Pod", namespace=backend.namespace, name=backend.name, uid=backend.uid)
    return EndpointAddress(ip=text, node_name=backend.node, target_ref=target, hostname=backend.hostname_in(service) or None)


def _is_current(endpoints: Endpoints, service: Service, *, truncated: bool) -> bool:
    """Return whether Endpoints have the desired labels, not counting ``HEADLESS``, and have or lack the annotation ``OVER_CAPACITY``."""
    labels = {name: value for name, value in endpoints.metadata.labels.items() if name != HEADLESS}
    return labels == _copied_labels(service) | {MANAGED_BY: MANAGER} and (OVER_CAPACITY in endpoints.metadata.annotations) is truncated


def _copied_labels(service: Service) -> dict[str, str]:
    return {name: value for name, value in service.metadata.labels.items() if name != HEADLESS}
