"""Objects that a kube-apiserver creates when it starts: roles and bindings, priority levels and flow schemas, APIServices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from kubeloop.types import JSONObject

# Kubernetes' default roles and bindings, as ``roles.json`` tells them in short.
#
# Source: plugin/pkg/auth/authorizer/rbac/bootstrappolicy, as a fresh 1.36 server holds them while no controller aggregates roles.


ROLES_GROUP = "rbac.authorization.k8s.io"

_ROLE_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_ROLE_ANNOTATIONS = {"rbac.authorization.kubernetes.io/autoupdate": "true"}


def default_roles() -> Iterator[tuple[str, JSONObject]]:
    """Each with its resource, roles before what binds them; new trees at every call."""
    told = msgspec.json.decode((resources.files("kubeloop.apiserver.builtin.bootstrap") / "roles.json").read_bytes())
    for resource in ("clusterroles", "roles"):
        for row in told[resource]:
            yield resource, _role(row)
    for resource in ("clusterrolebindings", "rolebindings"):
        for row in told[resource]:
            yield resource, _binding(row)


def _role_metadata(row: JSONObject) -> JSONObject:
    metadata: JSONObject = {"name": row["name"]}
    if "namespace" in row:
        metadata["namespace"] = row["namespace"]
    return {**metadata, "labels": {**_ROLE_LABELS, **row.get("labels", {})}, "annotations": dict(_ROLE_ANNOTATIONS)}


def _role(row: JSONObject) -> JSONObject:
    role: JSONObject = {"metadata": _role_metadata(row), "rules": row["rules"]}
    if "aggregates" in row:
        role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": labels} for labels in row["aggregates"]]}
    return role


def _binding(row: JSONObject) -> JSONObject:
    kind, name = row["role"]
    binding: JSONObject = {"metadata": _role_metadata(row)}
    if row["subjects"] is not None:
        binding["subjects"] = [_role_subject(*subject) for subject in row["subjects"]]
    return {**binding, "roleRef": {"apiGroup": ROLES_GROUP, "kind": kind, "name": name}}


def _role_subject(kind: str, name: str, namespace: str = "") -> JSONObject:
    if kind == "ServiceAccount":
        return {"kind": kind, "name": name, "namespace": namespace}
    return {"kind": kind, "apiGroup": ROLES_GROUP, "name": name}


# Kubernetes' suggested and mandatory priority levels and flow schemas. What they do here: ``flow``.
#
# Source: k8s.io/api flowcontrol bootstrap (k8s.io/apiserver pkg/apis/flowcontrol/bootstrap), as a fresh 1.36 server holds them.


FLOW_CONTROL_GROUP = "flowcontrol.apiserver.k8s.io"

#: What the server itself relies on: nobody may change the spec of these.
_MANDATORY = ("catch-all", "exempt")

_FLOW_ANNOTATIONS = {"apf.kubernetes.io/autoupdate-spec": "true"}


def default_flow_control(now: str) -> Iterator[tuple[str, JSONObject]]:
    """Each with its resource; new trees at every call. ``now``: RFC 3339."""
    told = _flow_objects()
    for row in told["prioritylevelconfigurations"]:
        yield "prioritylevelconfigurations", {"metadata": _flow_metadata(row), "spec": row["spec"], "status": {}}
    for row in told["flowschemas"]:
        level = row["spec"]["priorityLevelConfiguration"]["name"]
        yield (
            "flowschemas",
            {"metadata": _flow_metadata(row), "spec": row["spec"], "status": {"conditions": [dangling(level, now, exists=True)]}},
        )


@cache
def mandatory(resource: str) -> Mapping[str, JSONObject]:
    """Specs by name; shared, do not change them."""
    return {row["name"]: row["spec"] for row in _flow_objects()[resource] if row["name"] in _MANDATORY}


def _flow_objects() -> dict[str, list[JSONObject]]:
    data = (resources.files("kubeloop.apiserver.builtin.bootstrap") / "flow_control.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, list[dict[str, Any]]])


def _flow_metadata(row: JSONObject) -> JSONObject:
    return {"name": row["name"], "generation": 1, "annotations": dict(_FLOW_ANNOTATIONS)}


def dangling(level: str, now: str, *, exists: bool) -> JSONObject:
    """Return the condition of a FlowSchema that names the priority level ``level``; ``now``: RFC 3339."""
    state, reason, why = ("False", "Found", "it exists") if exists else ("True", "NotFound", "there is no such object")
    link = "and" if exists else "but"
    message = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}" {link} {why}'
    return {"type": "Dangling", "status": state, "lastTransitionTime": now, "reason": reason, "message": message}


# An APIService for each group and version of Kubernetes' own that the server serves by itself; see ``aggregation`` for all others.
#
# Source: pkg/controlplane/apiserver/aggregator.go (priorities), as a fresh 1.36 server holds them.


API_SERVICES_GROUP = "apiregistration.k8s.io"

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
