"""An APIService for each group and version of Kubernetes' own that the server serves by itself; see ``aggregation`` for all others.

Source: pkg/controlplane/apiserver/aggregator.go (priorities), as a fresh 1.36 server holds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubeloop.types import JSONObject

GROUP = "apiregistration.k8s.io"

#: Of the group, as clients order them.
_GROUP_PRIORITY = {
    "": 18000,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "certificates.k8s.io": 17300,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "admissionregistration.k8s.io": 16700,
    "apiextensions.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "node.k8s.io": 16300,
    "discovery.k8s.io": 16200,
    "resource.k8s.io": 16200,
    "flowcontrol.apiserver.k8s.io": 16100,
}
#: Of the version within its group, where it is not 15.
_VERSION_PRIORITY = {("", "v1"): 1, ("autoscaling", "v2"): 30, ("flowcontrol.apiserver.k8s.io", "v1"): 21, ("resource.k8s.io", "v1"): 21}


def group_priority(group: str) -> int | None:
    """None: no group of Kubernetes' own."""
    return _GROUP_PRIORITY.get(group)


def version_priority(group: str, version: str) -> int:
    return _VERSION_PRIORITY.get((group, version), 15)


def local_api_services(served: Iterable[tuple[str, str]], now: str) -> Iterator[JSONObject]:
    """One for each (group, version) that has a priority; the aggregation API itself has none. ``now``: RFC 3339."""
    for group, version in sorted(set(served), key=lambda one: (one[1], one[0])):
        priority = _GROUP_PRIORITY.get(group)
        if priority is None:
            continue
        spec: JSONObject = {"group": group} if group else {}
        yield {
            "metadata": {"name": f"{version}.{group}", "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}},
            "spec": {
                **spec,
                "version": version,
                "groupPriorityMinimum": priority,
                "versionPriority": version_priority(group, version),
            },
            "status": {"conditions": [available(now)]},
        }


def available(now: str) -> JSONObject:
    """The condition of an API that the server serves by itself. ``now``: RFC 3339."""
    message = "Local APIServices are always available"
    return {"type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Local", "message": message}
