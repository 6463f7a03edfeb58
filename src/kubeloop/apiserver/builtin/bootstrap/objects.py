"""Objects that a kube-apiserver creates when it starts: roles and bindings, priority levels and flow schemas, APIServices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from kubeloop.types import JSONObject

# Kubernetes' default roles and bindings, in the short form of ``roles.json``.
#
# Source: plugin/pkg/auth/authorizer/rbac/bootstrappolicy, as in a fresh 1.36 server without the controller that aggregates roles.


ROLES_GROUP = "rbac.authorization.k8s.io"

_ROLE_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_ROLE_ANNOTATIONS = {"rbac.authorization.kubernetes.io/autoupdate": "true"}


def default_roles() -> Iterator[tuple[str, JSONObject]]:
    """Yield the resource and the object of each default role and binding, roles first. The objects are new."""
    rows = msgspec.json.decode((resources.files("kubeloop.apiserver.builtin.bootstrap") / "roles.json").read_bytes())
    for resource in ("clusterroles", "roles"):
        for row in rows[resource]:
            yield resource, _role(row)
    for resource in ("clusterrolebindings", "rolebindings"):
        for row in rows[resource]:
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


# Kubernetes' suggested and mandatory priority levels and flow schemas; see ``flow`` for their use.
#
# Source: k8s.io/api flowcontrol bootstrap (k8s.io/apiserver pkg/apis/flowcontrol/bootstrap), as in a fresh 1.36 server.


FLOW_CONTROL_GROUP = "flowcontrol.apiserver.k8s.io"

#: Mandatory objects, on which the server relies: their spec is immutable.
_MANDATORY = ("catch-all", "exempt")

_FLOW_ANNOTATIONS = {"apf.kubernetes.io/autoupdate-spec": "true"}


def default_flow_control(now: str) -> Iterator[tuple[str, JSONObject]]:
    """Yield the resource and the object of each default level and schema. The objects are new. ``now`` is in RFC 3339."""
    rows = _flow_objects()
    for row in rows["prioritylevelconfigurations"]:
        yield "prioritylevelconfigurations", {"metadata": _flow_metadata(row), "spec": row["spec"], "status": {}}
    for row in rows["flowschemas"]:
        level = row["spec"]["priorityLevelConfiguration"]["name"]
        yield (
            "flowschemas",
            {"metadata": _flow_metadata(row), "spec": row["spec"], "status": {"conditions": [dangling(level, now, exists=True)]}},
        )


@cache
def mandatory(resource: str) -> Mapping[str, JSONObject]:
    """Return the specs of the mandatory objects by name. They are shared and must not be changed."""
    return {row["name"]: row["spec"] for row in _flow_objects()[resource] if row["name"] in _MANDATORY}


def _flow_objects() -> dict[str, list[JSONObject]]:
    data = (resources.files("kubeloop.apiserver.builtin.bootstrap") / "flow_control.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, list[dict[str, Any]]])


def _flow_metadata(row: JSONObject) -> JSONObject:
    return {"name": row["name"], "generation": 1, "annotations": dict(_FLOW_ANNOTATIONS)}


def dangling(level: str, now: str, *, exists: bool) -> JSONObject:
    """Return the condition Dangling of a FlowSchema that names the priority level ``level``. ``now`` is in RFC 3339."""
    state, reason, why = ("False", "Found", "it exists") if exists else ("True", "NotFound", "there is no such object")
    link = "and" if exists else "but"
    message = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}" {link} {why}'
    return {"type": "Dangling", "status": state, "lastTransitionTime": now, "reason": reason, "message": message}


# An APIService for each group and version that the server serves itself; see ``aggregation`` for all others.
#
# Source: pkg/controlplane/apiserver/aggregator.go (priorities), as in a fresh 1.36 server.


API_SERVICES_GROUP = "apiregistration.k8s.io"

#: Priority of each group, by which clients order groups.
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
#: Priority of versions within their group that is not 15.
_VERSION_PRIORITY = {("", "v1"): 1, ("autoscaling", "v2"): 30, ("flowcontrol.apiserver.k8s.io", "v1"): 21, ("resource.k8s.io", "v1"): 21}


def group_priority(group: str) -> int | None:
    """Return the priority of a group, or None for a group that does not belong to Kubernetes."""
    return _GROUP_PRIORITY.get(group)


def version_priority(group: str, version: str) -> int:
    """Return the priority of a version within its group."""
    return _VERSION_PRIORITY.get((group, version), 15)


def local_api_services(served: Iterable[tuple[str, str]], now: str) -> Iterator[JSONObject]:
    """Yield an APIService for each (group, version) with a priority; the aggregation API has none. ``now`` is in RFC 3339."""
    for group, version in sorted(set(served), key=lambda group_version: (group_version[1], group_version[0])):
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
    """Return the condition Available of an API that the server serves itself. ``now`` is in RFC 3339."""
    message = "Local APIServices are always available"
    return {"type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Local", "message": message}
