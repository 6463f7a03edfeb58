"""Kubernetes' default roles and bindings, as ``roles.json`` tells them in short.

Source: plugin/pkg/auth/authorizer/rbac/bootstrappolicy, as a fresh 1.36 server holds them while no controller aggregates roles.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

import msgspec

from kubeloop.types import JSONObject

GROUP = "rbac.authorization.k8s.io"

_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}
_ANNOTATIONS = {"rbac.authorization.kubernetes.io/autoupdate": "true"}


def default_roles() -> Iterator[tuple[str, JSONObject]]:
    """Each with its resource, roles before what binds them; new trees at every call."""
    told = msgspec.json.decode((resources.files("kubeloop.apiserver.builtin.bootstrap") / "roles.json").read_bytes())
    for resource in ("clusterroles", "roles"):
        for row in told[resource]:
            yield resource, _role(row)
    for resource in ("clusterrolebindings", "rolebindings"):
        for row in told[resource]:
            yield resource, _binding(row)


def _metadata(row: JSONObject) -> JSONObject:
    metadata: JSONObject = {"name": row["name"]}
    if "namespace" in row:
        metadata["namespace"] = row["namespace"]
    return {**metadata, "labels": {**_LABELS, **row.get("labels", {})}, "annotations": dict(_ANNOTATIONS)}


def _role(row: JSONObject) -> JSONObject:
    role: JSONObject = {"metadata": _metadata(row), "rules": row["rules"]}
    if "aggregates" in row:
        role["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": labels} for labels in row["aggregates"]]}
    return role


def _binding(row: JSONObject) -> JSONObject:
    kind, name = row["role"]
    binding: JSONObject = {"metadata": _metadata(row)}
    if row["subjects"] is not None:
        binding["subjects"] = [_subject(*subject) for subject in row["subjects"]]
    return {**binding, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name}}


def _subject(kind: str, name: str, namespace: str = "") -> JSONObject:
    if kind == "ServiceAccount":
        return {"kind": kind, "name": name, "namespace": namespace}
    return {"kind": kind, "apiGroup": GROUP, "name": name}
