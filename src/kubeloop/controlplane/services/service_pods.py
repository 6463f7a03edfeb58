"""Pods of Services, which the controllers of Endpoints and EndpointSlices read in each reconcile, with caches for unchanged pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from kubeloop.api.core.v1 import Pod, Service
from kubeloop.cache import Head, Lister
from kubeloop.controlplane.services.backends import (
    BackendReader,
    ChangeBatcher,
    PodBackend,
    PortFinder,
    TriggerTimes,
    selected_pods,
    services_selecting,
)
from kubeloop.meta import ObjectKey, format_time


class SelectedPods(msgspec.Struct, frozen=True):
    """The pods that a Service selects: the head and the backend of each, and the trigger time of their changes (``TriggerTimes``)."""

    heads: list[Head]
    backends: list[PodBackend]
    changed_at: str


class ServicePods:
    """Reads the pods of Services with caches for unchanged pods, and delays reconciles so that many changes in a row cause few.

    Args:
        batch_period: Minimum seconds from the change of a pod to the reconcile.
    """

    def __init__(self, batch_period: float) -> None:
        self._batcher = ChangeBatcher(batch_period)

    def start(self, pods: Lister[Pod]) -> None:
        """Set the cached pods and clear all caches. It must be called before the first ``select``."""
        self._pods = pods
        self._backends = BackendReader()
        self._times = TriggerTimes()
        self._ports = PortFinder(pods)

    def forget(self, service: ObjectKey) -> None:
        """Forget everything about a Service."""
        for memory in (self._batcher, self._backends, self._times, self._ports):
            memory.forget(service)

    def delays(self, services: Lister[Service], pod: Head, now: float) -> Iterator[tuple[ObjectKey, float]]:
        """Yield the Services that select a changed pod, each with the seconds until its reconcile."""
        for key in services_selecting(services, pod):
            yield key, self._batcher.delay(key, now)

    def select(self, service: Service, now: float) -> SelectedPods:
        """Return the pods that a Service selects, and begin the pause after its reconcile."""
        key = ObjectKey("", service.metadata.namespace, service.metadata.name)
        heads = selected_pods(self._pods, service)
        self._batcher.reconciled(key, len(heads), now)
        backends = self._backends.read(key, heads)
        created = service.metadata.creation_timestamp
        changed_at = self._times.earliest_change(key, format_time(created) if created is not None else "", backends)
        return SelectedPods(heads, backends, changed_at)

    def port_numbers(self, service: Service, pods: Sequence[Head]) -> Callable[[Head], tuple[int | None, ...]]:
        """Return a function that maps a pod to the numbers of the Service's ports; see ``PortFinder.numbers``."""
        return self._ports.numbers(service, pods)
