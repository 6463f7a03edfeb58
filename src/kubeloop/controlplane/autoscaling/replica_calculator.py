"""Computes how many replicas a metric recommends. Pure functions; amounts are in thousandths of the metric's unit.

Source: Kubernetes pkg/controller/podautoscaler/replica_calculator.go and metrics/utilization.go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from kubeloop.api.autoscaling.v2 import HorizontalPodAutoscalerBehavior
from kubeloop.api.core.v1 import Container, Pod, PodCondition
from kubeloop.codec import to_dict
from kubeloop.controlplane.controller_utils import is_ready
from kubeloop.meta import KubeloopError
from kubeloop.quota.pods import pod_requests

#: Default of kube-controller-manager: a usage between 90 % and 110 % of the target changes nothing.
TOLERANCE = 0.1
_CPU = "cpu"
_POD_LEVEL = frozenset({"cpu", "memory"})
_HUGE_PAGES = "hugepages-"
_LARGEST_COUNT, _LARGEST_AMOUNT = 2**31 - 1, 2**63 - 1


class MetricError(KubeloopError):
    """No number of replicas can be computed from a metric; the message is upstream's."""


class PodMetric(NamedTuple):
    """The usage of one pod, when it was measured, and the seconds that the measurement covers."""

    value: int
    timestamp: datetime
    window: float


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How far usage may be below and above the target without a change, as fractions of the target."""

    down: float = TOLERANCE
    up: float = TOLERANCE

    @classmethod
    def from_behavior(cls, behavior: HorizontalPodAutoscalerBehavior | None) -> Tolerances:
        """Return the tolerances of an autoscaler; a missing one is ``TOLERANCE``."""
        down, up = (rules.tolerance if rules else None for rules in (behavior.scale_down, behavior.scale_up)) if behavior else (None, None)
        return cls(TOLERANCE if down is None else float(down), TOLERANCE if up is None else float(up))

    def include(self, ratio: float) -> bool:
        """Return whether a ratio of usage to target is within the tolerances, so that the workload does not change."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


@dataclass(frozen=True, slots=True)
class ReadinessRules:
    """Seconds for which the CPU usage of a starting pod is ignored. The defaults are kube-controller-manager's.

    They correspond to its flags ``--horizontal-pod-autoscaler-cpu-initialization-period`` and ``-initial-readiness-delay``.
    """

    cpu_initialization_period: float = 300.0
    initial_readiness_delay: float = 30.0


class Proposal(NamedTuple):
    """The number of replicas that a metric recommends.

    ``usage`` is the present amount of the metric: in total, or the average of a pod. ``utilization`` is the percentage of the requests;
    None if the target is no percentage.
    """

    replicas: int
    usage: int
    utilization: int | None = None


@dataclass(frozen=True, slots=True)
class PodSample:
    """The pods of a workload and their metrics, from which a proposal is computed.

    Attributes:
        pods: All pods that the selector of the workload matches.
        metrics: Usage by pod name.
        current: Present number of replicas.
        tolerances: The tolerances of the autoscaler.
        now: Present time.
        rules: Rules that say which pods count as starting.
    """

    pods: Sequence[Pod]
    metrics: Mapping[str, PodMetric]
    current: int
    tolerances: Tolerances
    now: datetime
    rules: ReadinessRules = ReadinessRules()


class _Ratio(NamedTuple):
    ratio: float
    usage: int
    utilization: int | None


class _Requests(NamedTuple):
    """Compares usage with a percentage of the requests."""

    target: int
    requests: Mapping[str, int]

    def ratio(self, metrics: Mapping[str, int]) -> _Ratio:
        known = {name: value for name, value in metrics.items() if name in self.requests}
        requested = sum(self.requests[name] for name in known)
        if requested == 0:
            raise MetricError("no metrics returned matched known pods")
        total = sum(known.values())
        utilization = total * 100 // requested
        return _Ratio(utilization / self.target, total // len(known), utilization)

    def when_missing(self, name: str) -> int:
        return self.requests[name] * max(100, self.target) // 100


class _Average(NamedTuple):
    """Compares usage with an amount for each pod."""

    target: int

    def ratio(self, metrics: Mapping[str, int]) -> _Ratio:
        usage = sum(metrics.values()) // len(metrics)
        return _Ratio(usage / self.target, usage, None)

    def when_missing(self, name: str) -> int:  # noqa: ARG002  # the amount is the same for all pods
        return self.target


def propose_by_utilization(sample: PodSample, resource: str, target: int, container: str = "") -> Proposal:
    """Compute the number of replicas for a target percentage of the pods' resource requests.

    Args:
        sample: Pods and their usage.
        resource: A resource such as ``cpu``.
        target: Target percentage of the average usage.
        container: Count only the requests of this container. Empty: all containers.

    Returns:
        The proposal; ``usage`` is the average for a pod.

    Raises:
        MetricError: A pod has no request, or no pod counts.
    """
    metrics, groups = _grouped(sample, resource)
    requests = {pod.metadata.name: _request(pod, container, resource) for pod in sample.pods}
    return _propose(sample, metrics, groups, _Requests(target, requests))


def propose_by_average(sample: PodSample, target: int, resource: str = "") -> Proposal:
    """Compute the number of replicas for a target average amount per pod.

    Args:
        sample: Pods and their usage.
        target: Target average amount per pod.
        resource: The resource; starting pods do not count for ``cpu``. Empty: a custom metric.

    Returns:
        The proposal; ``usage`` is the average for a pod.

    Raises:
        MetricError: No pod counts.
    """
    metrics, groups = _grouped(sample, resource)
    return _propose(sample, metrics, groups, _Average(target))


def propose_by_value(pods: Sequence[Pod], usage: int, target: int, current: int, tolerances: Tolerances) -> Proposal:
    """Compute the number of replicas for a target amount that concerns the whole workload: the number of ready pods times usage / target.

    Args:
        pods: All pods that the selector of the workload matches.
        usage: Present amount.
        target: Target amount.
        current: Present number of replicas. 0: the result is usage / target, rounded up.
        tolerances: The tolerances of the autoscaler.

    Returns:
        The proposal; ``usage`` is the amount itself.

    Raises:
        MetricError: There are no pods.
    """
    ratio = usage / target
    if current == 0:
        return Proposal(math.ceil(ratio), usage)
    if tolerances.include(ratio):
        return Proposal(current, usage)
    if not pods:
        raise MetricError("unable to calculate ready pods: no pods returned by selector while calculating replica count")
    ready = sum(pod.status.phase == "Running" and is_ready(pod) for pod in pods)
    return Proposal(min(math.ceil(ratio * ready), _LARGEST_COUNT), usage)


def propose_by_share(usage: int, target: int, existing: int, tolerances: Tolerances) -> Proposal:
    """Compute the number of replicas among which an amount of the whole workload is divided evenly.

    Args:
        usage: Present amount of the whole workload.
        target: Target amount per replica.
        existing: Number of existing replicas.
        tolerances: The tolerances of the autoscaler.

    Returns:
        The proposal; ``usage`` is the present share of each replica.
    """
    unchanged = existing > 0 and tolerances.include(usage / (target * existing))
    replicas = existing if unchanged else min(-(-usage // target), _LARGEST_COUNT)
    # Without replicas there is no share; upstream divides by zero and writes the smallest integer.
    return Proposal(replicas, usage if usage >= _LARGEST_AMOUNT or not existing else -(-usage // existing))


def _propose(sample: PodSample, metrics: dict[str, int], groups: _Groups, target: _Requests | _Average) -> Proposal:
    ratio, usage, utilization = target.ratio(metrics)
    unchanged = Proposal(sample.current, usage, utilization)
    growing_with_unready = bool(groups.unready) and ratio > 1.0
    if not growing_with_unready and not groups.missing:
        return unchanged if sample.tolerances.include(ratio) else Proposal(math.ceil(ratio * groups.ready), usage, utilization)
    # Pods without a metric must not amplify a change: they count as idle when the workload grows, as busy when it shrinks.
    if ratio < 1.0:
        metrics.update({name: target.when_missing(name) for name in groups.missing})
    elif ratio > 1.0:
        metrics.update(dict.fromkeys(groups.missing, 0))
    if growing_with_unready:
        metrics.update(dict.fromkeys(groups.unready, 0))
    cautious = target.ratio(metrics).ratio
    if sample.tolerances.include(cautious) or (ratio < 1.0 < cautious) or (cautious < 1.0 < ratio):
        return unchanged
    replicas = math.ceil(cautious * len(metrics))
    if (cautious < 1.0 and replicas > sample.current) or (cautious > 1.0 and replicas < sample.current):
        return unchanged
    return Proposal(replicas, usage, utilization)


class _Groups(NamedTuple):
    ready: int
    unready: list[str]
    missing: list[str]


def _grouped(sample: PodSample, resource: str) -> tuple[dict[str, int], _Groups]:
    """Return the usage by name of the pods that count, and the pods grouped into ready, unready and without a metric.

    Raises:
        MetricError: No pod counts.
    """
    if not sample.pods:
        raise MetricError("no pods returned by selector while calculating replica count")
    metrics = {name: metric.value for name, metric in sample.metrics.items()}
    ready, unready, missing = 0, [], []
    for pod in sample.pods:
        name, metric = pod.metadata.name, sample.metrics.get(pod.metadata.name)
        if pod.metadata.deletion_timestamp is not None or pod.status.phase == "Failed":
            metrics.pop(name, None)
        elif pod.status.phase == "Pending" or (metric is not None and resource == _CPU and _is_starting(pod, metric, sample)):
            unready.append(name)
            metrics.pop(name, None)
        elif metric is None:
            missing.append(name)
        else:
            ready += 1
    if not metrics:
        raise MetricError("did not receive metrics for targeted pods (pods might be unready)")
    return metrics, _Groups(ready, unready, missing)


def _is_starting(pod: Pod, metric: PodMetric, sample: PodSample) -> bool:
    """Return whether the CPU usage of a pod is not yet meaningful, because the pod is starting or has never been ready."""
    condition = next((one for one in pod.status.conditions if one.type == "Ready"), None)
    started = pod.status.start_time
    if condition is None or started is None:
        return True
    changed = _transition(condition)
    if started + timedelta(seconds=sample.rules.cpu_initialization_period) > sample.now:
        return condition.status == "False" or metric.timestamp < changed + timedelta(seconds=metric.window)
    return condition.status == "False" and started + timedelta(seconds=sample.rules.initial_readiness_delay) > changed


def _transition(condition: PodCondition) -> datetime:
    return condition.last_transition_time or datetime.min.replace(tzinfo=UTC)


def _request(pod: Pod, container: str, resource: str) -> int:
    """Return the request of a pod or of one of its containers.

    Raises:
        MetricError: A container has no request, or does not exist.
    """
    name = pod.metadata.name
    whole = pod.spec.resources.requests if pod.spec.resources is not None else {}
    if not container and any(one in _POD_LEVEL or one.startswith(_HUGE_PAGES) for one in whole):
        requested = pod_requests(to_dict(pod)).get(resource)
        if requested is None:
            raise MetricError(f"missing pod-level request for {resource} in Pod {name}")
        return requested.milli_value()
    sidecars = [one for one in pod.spec.init_containers if one.restart_policy == "Always"]
    chosen: list[Container] = [one for one in [*pod.spec.containers, *sidecars] if container in ("", one.name)]
    if not chosen:
        raise MetricError(f"container {container} not found in Pod {name}")
    total = 0
    for one in chosen[:1] if container else chosen:
        requests = one.resources.requests
        if resource not in requests:
            raise MetricError(f"missing request for {resource} in container {one.name} of Pod {name}")
        total += requests[resource].milli_value()
    return total
