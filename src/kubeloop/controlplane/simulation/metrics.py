"""The usage of simulated nodes and pods as objects of metrics.k8s.io/v1beta1, which is computed as a function of time at each request.

Source: k8s.io/metrics pkg/apis/metrics/v1beta1; kubernetes-sigs/metrics-server pkg/api (pod.go, node.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from kubeloop.api.core.v1 import Node, Pod
from kubeloop.client import Client
from kubeloop.codec import to_dict
from kubeloop.controlplane.metrics.documents import measured_metadata, quantities
from kubeloop.controlplane.simulation.annotations import Simulation
from kubeloop.controlplane.simulation.nodes import SimulatedNodes
from kubeloop.controlplane.simulation.usage import UsageFunction
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.meta import Selector, format_time
from kubeloop.meta.time import parse_time
from kubeloop.types import JSONObject

#: The window of a measurement: usage is a function of time, so that no longer period is measured.
_WINDOW = "1s"
#: The usage of a container without annotations: one thousandth of a core, and 16 MiB.
_IDLE: Mapping[str, UsageFunction] = {"cpu": UsageFunction(0.001), "memory": UsageFunction(16.0 * 1024 * 1024)}


def pod_metrics(pod: JSONObject, simulation: Simulation, now: datetime) -> JSONObject | None:
    """Return the PodMetrics of a pod, or None if none of its containers runs.

    Args:
        pod: The pod.
        simulation: The behaviour of the pod's containers.
        now: The time of the measurement.
    """
    status = pod.get("status") or {}
    containers = []
    for one in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        started = ((one.get("state") or {}).get("running") or {}).get("startedAt")
        if started is None:
            continue
        seconds = max((now - parse_time(started)).total_seconds(), 0.0)
        usage = {name: (simulation.usage(name, one["name"]) or idle).at(seconds) for name, idle in _IDLE.items()}
        containers.append({"name": one["name"], "usage": quantities(usage)})
    if not containers:
        return None
    metadata = pod["metadata"]
    return {
        "metadata": measured_metadata(metadata, now) | {"namespace": metadata.get("namespace", "")},
        "timestamp": format_time(now.replace(microsecond=0)),
        "window": _WINDOW,
        "containers": containers,
    }


def node_metrics(node: JSONObject, pods: list[JSONObject], system: Mapping[str, UsageFunction], now: datetime) -> JSONObject:
    """Return the NodeMetrics of a node.

    Args:
        node: The Node.
        pods: The PodMetrics of the node's pods.
        system: The usage of the node in addition to its pods, by resource.
        now: The time of the measurement.
    """
    created = node["metadata"].get("creationTimestamp")
    seconds = max((now - parse_time(created)).total_seconds(), 0.0) if created else 0.0
    usage = {name: system[name].at(seconds) if name in system else 0.0 for name in _IDLE}
    for pod in pods:
        for container in pod["containers"]:
            usage["cpu"] += int(container["usage"]["cpu"].removesuffix("n")) / 1e9
            usage["memory"] += int(container["usage"]["memory"].removesuffix("Ki")) * 1024
    return {
        "metadata": measured_metadata(node["metadata"], now),
        "timestamp": format_time(now.replace(microsecond=0)),
        "window": _WINDOW,
        "usage": quantities(usage),
    }


class SimulatedUsage:
    """The ``UsageSource`` of a metrics server for simulated nodes.

    Args:
        simulated: The simulated nodes, from whose caches pods and nodes are read.
    """

    def __init__(self, simulated: SimulatedNodes) -> None:
        self._simulated = simulated

    async def measure(self, client: Client) -> None:
        """Return at once: simulated usage needs no measurements."""

    async def pods(self, info: RequestInfo, labels: Selector) -> list[JSONObject]:
        """Return the PodMetrics for a request.

        Args:
            info: The request.
            labels: Selects pods if the request names none.
        """
        lister = self._simulated.lister(Pod)
        if info.verb == "get":
            pods = [pod for pod in [lister.get(info.name, info.namespace)] if pod is not None]
        else:
            pods = [pod for pod in lister.each(info.namespace or None) if labels.matches(pod.metadata.labels)]
        return [metrics for pod in pods if (metrics := self._of_pod(to_dict(pod))) is not None]

    def _of_pod(self, pod: JSONObject) -> JSONObject | None:
        if (pod.get("spec") or {}).get("nodeName") not in self._simulated.nodes:
            return None
        return pod_metrics(pod, self._simulated.rules.simulation_of(pod), self._simulated.clock.wall())

    async def nodes(self, info: RequestInfo, labels: Selector) -> list[JSONObject]:
        """Return the NodeMetrics for a request.

        Args:
            info: The request.
            labels: Selects nodes if the request names none.
        """
        names = [info.name] if info.verb == "get" else list(self._simulated.nodes)
        result = []
        for name in names:
            node = self._simulated.lister(Node).get(name)
            if node is None or name not in self._simulated.nodes or self._simulated.is_down(name):
                continue
            if info.verb == "list" and not labels.matches(node.metadata.labels):
                continue
            pods = [metrics for pod in self._simulated.pods_of(name) if (metrics := self._of_pod(to_dict(pod))) is not None]
            result.append(node_metrics(to_dict(node), pods, self._simulated.templates[name].usage, self._simulated.clock.wall()))
        return result
