"""Pods, nodes and clusters in the view of the scheduler, for tests of its plugins."""

from __future__ import annotations

from typing import Any

from kubeloop.controlplane.scheduling.cluster_facts import ClusterFacts
from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts
from kubeloop.types import JSONObject

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
ROOM = {"cpu": 4000, "memory": 10 << 30, "pods": 10}
WEB = {"app": "web"}


def pod(name: str = "p", *, labels: dict[str, str] | None = None, cpu: str = "", memory: str = "", **spec: Any) -> PodFacts:
    """Return a pod of the namespace "shop" with one container; ``status`` among the fields is its status, ``owner`` its controller."""
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    container: JSONObject = {"name": "c", "image": spec.pop("image", "x"), "resources": {"requests": requests}}
    metadata: JSONObject = {"name": name, "namespace": spec.pop("namespace", "shop"), "uid": name, "labels": labels or {}}
    if spec.pop("terminating", False):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if owner := spec.pop("owner", None):
        metadata["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "controller": True}]
    status = spec.pop("status", {})
    return PodFacts({"metadata": metadata, "spec": {"containers": [container]} | spec, "status": status})


def node(
    name: str, *pods: PodFacts, taints: list[JSONObject] | None = None, images: dict[str, int] | None = None, **fields: Any
) -> NodeFacts:
    """Return a node with 4 cpu, 10Gi and room for 10 pods; ``room`` replaces some of it, other fields are labels."""
    room = ROOM | fields.pop("room", {})
    closed = fields.pop("closed", False)
    labels = {HOSTNAME: name} | {ZONE if key == "zone" else key: value for key, value in fields.items()}
    return NodeFacts(name, labels, taints or [], closed, room, pods, images)


def cluster(*nodes: NodeFacts, **fields: Any) -> ClusterFacts:
    """Return a cluster of these nodes, with a namespace "shop"."""
    made = ClusterFacts(nodes, namespaces=fields.pop("namespaces", {"shop": {}}))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def near(kind: str, weight: int = 0, key: str = HOSTNAME, labels: dict[str, str] | None = None, **term: Any) -> JSONObject:
    """Return affinity or anti-affinity (``kind``) to pods with labels, preferred with a weight and required without."""
    made = {"topologyKey": key, "labelSelector": {"matchLabels": labels or WEB}} | term
    if weight:
        return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight, "podAffinityTerm": made}]}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [made]}}


def spread(key: str = ZONE, *, skew: int = 1, hard: bool = True, labels: dict[str, str] | None = None, **fields: Any) -> list[JSONObject]:
    """Return topology spread constraints: one over the key."""
    when = "DoNotSchedule" if hard else "ScheduleAnyway"
    selector = {"labelSelector": {"matchLabels": labels or WEB}}
    return [{"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": when} | selector | fields]
