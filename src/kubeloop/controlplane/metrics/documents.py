"""Objects and discovery documents of metrics.k8s.io/v1beta1. No I/O.

Source: k8s.io/metrics pkg/apis/metrics/v1beta1; kubernetes-sigs/metrics-server pkg/api (pod.go, node.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from kubeloop.meta import format_time
from kubeloop.types import JSONObject

GROUP: Final = "metrics.k8s.io"
VERSION: Final = "v1beta1"
_API = f"{GROUP}/{VERSION}"
#: Resources of the API, each as name, kind and whether it is namespaced.
RESOURCES: Final = (("nodes", "NodeMetrics", False), ("pods", "PodMetrics", True))


def measured_metadata(metadata: JSONObject, now: datetime) -> JSONObject:
    """Return the metadata of a PodMetrics or NodeMetrics object: name and labels of the pod or node, and the time of the measurement.

    Args:
        metadata: The metadata of the pod or node.
        now: The time of the measurement.
    """
    result: JSONObject = {"name": metadata["name"], "creationTimestamp": format_time(now.replace(microsecond=0))}
    return result | ({"labels": metadata["labels"]} if metadata.get("labels") else {})


def quantities(usage: Mapping[str, float]) -> dict[str, str]:
    """Return the quantities, such as ``250000000n`` and ``64Ki``, of a usage in CPUs and bytes with the keys ``cpu`` and ``memory``."""
    return {"cpu": f"{round(usage['cpu'] * 1e9)}n", "memory": f"{round(usage['memory'] / 1024)}Ki"}


def metrics_object(kind: str, metrics: JSONObject) -> JSONObject:
    """Return a measurement with ``kind`` and ``apiVersion``, such as a PodMetrics object."""
    return {"kind": kind, "apiVersion": _API} | metrics


def metrics_list(kind: str, items: list[JSONObject]) -> JSONObject:
    """Return the list object of measurements of a kind, such as PodMetricsList."""
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
    """Return the APIResourceList of metrics.k8s.io/v1beta1, for discovery without aggregation."""
    resources = [
        {"name": name, "singularName": name.removesuffix("s"), "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]}
        for name, kind, namespaced in RESOURCES
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": _API, "resources": resources}
