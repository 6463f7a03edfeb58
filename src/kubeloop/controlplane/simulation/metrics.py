"""The usage of simulated nodes and pods as objects of metrics.k8s.io/v1beta1. No I/O.

Source: k8s.io/metrics pkg/apis/metrics/v1beta1; kubernetes-sigs/metrics-server pkg/api (pod.go, node.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from kubeloop.controlplane.simulation.annotations import Simulation
from kubeloop.controlplane.simulation.usage import UsageFunction
from kubeloop.meta import format_time
from kubeloop.meta.time import parse_time
from kubeloop.types import JSONObject

GROUP: Final = "metrics.k8s.io"
VERSION: Final = "v1beta1"
_API = f"{GROUP}/{VERSION}"
#: The usage is a function of time, so that a measurement covers no more than a moment.
_WINDOW = "1s"
#: The usage of a container without annotations: one thousandth of a core, and 16 MiB.
_IDLE: Mapping[str, UsageFunction] = {"cpu": UsageFunction(0.001), "memory": UsageFunction(16.0 * 1024 * 1024)}
#: Resources of the API: name, kind, whether namespaced.
RESOURCES: Final = (("nodes", "NodeMetrics", False), ("pods", "PodMetrics", True))


def pod_metrics(pod: JSONObject, simulation: Simulation, now: datetime) -> JSONObject | None:
    """Return the PodMetrics of a pod, or None if none of its containers runs.

    Args:
        pod: The pod.
        simulation: The behaviour of its containers.
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
        containers.append({"name": one["name"], "usage": _quantities(usage)})
    if not containers:
        return None
    metadata = pod["metadata"]
    return {
        "metadata": _metadata(metadata, now) | {"namespace": metadata.get("namespace", "")},
        "timestamp": format_time(now.replace(microsecond=0)),
        "window": _WINDOW,
        "containers": containers,
    }


def node_metrics(node: JSONObject, pods: list[JSONObject], system: Mapping[str, UsageFunction], now: datetime) -> JSONObject:
    """Return the NodeMetrics of a node.

    Args:
        node: The Node.
        pods: The PodMetrics of its pods.
        system: Its usage besides the pods, by resource.
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
        "metadata": _metadata(node["metadata"], now),
        "timestamp": format_time(now.replace(microsecond=0)),
        "window": _WINDOW,
        "usage": _quantities(usage),
    }


def _metadata(metadata: JSONObject, now: datetime) -> JSONObject:
    result: JSONObject = {"name": metadata["name"], "creationTimestamp": format_time(now.replace(microsecond=0))}
    return result | ({"labels": metadata["labels"]} if metadata.get("labels") else {})


def _quantities(usage: Mapping[str, float]) -> dict[str, str]:
    return {"cpu": f"{round(usage['cpu'] * 1e9)}n", "memory": f"{round(usage['memory'] / 1024)}Ki"}


def metrics_object(kind: str, metrics: JSONObject) -> JSONObject:
    return {"kind": kind, "apiVersion": _API} | metrics


def metrics_list(kind: str, items: list[JSONObject]) -> JSONObject:
    return {"kind": f"{kind}List", "apiVersion": _API, "metadata": {}, "items": items}


# ------------------------------------------------------------------------------------------------------------------- discovery


def api_group_list() -> JSONObject:
    """Return the aggregated discovery document of the API (apidiscovery.k8s.io/v2)."""
    resources = [
        {
            "resource": name,
            "responseKind": {"group": GROUP, "version": VERSION, "kind": kind},
            "scope": "Namespaced" if namespaced else "Cluster",
            "singularResource": name.removesuffix("s"),
            "verbs": ["get", "list"],
        }
        for name, kind, namespaced in RESOURCES
    ]
    versions = [{"version": VERSION, "resources": resources, "freshness": "Current"}]
    group = {"metadata": {"name": GROUP, "creationTimestamp": None}, "versions": versions}
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": [group]}


def api_resource_list() -> JSONObject:
    """Return the resources of the version, for discovery without aggregation."""
    resources = [
        {"name": name, "singularName": name.removesuffix("s"), "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]}
        for name, kind, namespaced in RESOURCES
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": _API, "resources": resources}
