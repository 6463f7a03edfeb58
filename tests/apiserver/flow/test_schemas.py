"""Which FlowSchema a request belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.apiserver.flow.schemas import FlowSchema
from kubeloop.endpoints.access import User
from kubeloop.endpoints.request_info import RequestInfo

BOT = User("system:serviceaccount:shop:bot", ("system:serviceaccounts", "system:authenticated"))
PODS = RequestInfo("list", "", True, "", "v1", "pods", namespace="shop")
LEASES = RequestInfo("update", "", True, "coordination.k8s.io", "v1", "leases", "status", "shop", "a")
NODES = RequestInfo("get", "", True, "", "v1", "nodes", name="one")
HEALTH = RequestInfo("get", "/healthz/etcd")

EVERY = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}


def schema(*, subject: dict[str, Any] | None = None, by: str = "", **rules: list[dict[str, Any]]) -> FlowSchema:
    given = subject or {"kind": "User", "user": {"name": "*"}}
    method = {"distinguisherMethod": {"type": by}} if by else {}
    spec = {"priorityLevelConfiguration": {"name": "l"}, "rules": [{"subjects": [given], **rules}], **method}
    return FlowSchema.parse({"metadata": {"name": "s", "uid": "u"}, "spec": spec})


@pytest.mark.parametrize(
    ("subject", "matches"),
    [
        pytest.param({"kind": "User", "user": {"name": "*"}}, True, id="every user"),
        pytest.param({"kind": "User", "user": {"name": BOT.name}}, True, id="a user by name"),
        pytest.param({"kind": "User", "user": {"name": "bot"}}, False, id="another user"),
        pytest.param({"kind": "Group", "group": {"name": "system:authenticated"}}, True, id="a group"),
        pytest.param({"kind": "Group", "group": {"name": "*"}}, True, id="every group"),
        pytest.param({"kind": "Group", "group": {"name": "ops"}}, False, id="another group"),
        pytest.param({"kind": "ServiceAccount", "serviceAccount": {"namespace": "shop", "name": "bot"}}, True, id="an account"),
        pytest.param({"kind": "ServiceAccount", "serviceAccount": {"namespace": "shop", "name": "*"}}, True, id="a namespace's accounts"),
        pytest.param({"kind": "ServiceAccount", "serviceAccount": {"namespace": "sho", "name": "*"}}, False, id="another namespace's"),
    ],
)
def test_subjects(subject: dict[str, Any], *, matches: bool) -> None:
    assert schema(subject=subject, resourceRules=[EVERY]).match(BOT, PODS) is matches


@pytest.mark.parametrize(
    ("rule", "info", "matches"),
    [
        pytest.param({}, PODS, True, id="everything in namespaces"),
        pytest.param({"verbs": ["get"]}, PODS, False, id="another verb"),
        pytest.param({"namespaces": ["shop"]}, PODS, True, id="a namespace"),
        pytest.param({"namespaces": ["db"]}, PODS, False, id="another namespace"),
        pytest.param({"clusterScope": False}, NODES, False, id="outside of namespaces only where it says so"),
        pytest.param({"clusterScope": True, "namespaces": []}, NODES, True, id="outside of namespaces"),
        pytest.param({"resources": ["leases"]}, LEASES, False, id="a resource is not its subresources"),
        pytest.param({"resources": ["leases/status"]}, LEASES, True, id="a subresource"),
        pytest.param({"apiGroups": ["apps"]}, LEASES, False, id="another group"),
        pytest.param({}, HEALTH, False, id="no resource"),
    ],
)
def test_resources(rule: dict[str, Any], info: RequestInfo, *, matches: bool) -> None:
    assert schema(resourceRules=[EVERY | rule]).match(BOT, info) is matches


@pytest.mark.parametrize(
    ("path", "matches"),
    [
        pytest.param("*", True, id="every path"),
        pytest.param("/healthz/etcd", True, id="a path"),
        pytest.param("/healthz", True, id="a path above it"),
        pytest.param("/healthz/*", True, id="all below a path"),
        pytest.param("/health*", False, id="a part of a segment is none"),
        pytest.param("/livez", False, id="another path"),
    ],
)
def test_paths(path: str, *, matches: bool) -> None:
    assert schema(nonResourceRules=[{"verbs": ["get"], "nonResourceURLs": [path]}]).match(BOT, HEALTH) is matches


def test_flows_are_distinguished_by_user_by_namespace_or_not_at_all() -> None:
    assert [schema(by=by).flow(BOT, PODS) for by in ("ByUser", "ByNamespace", "")] == [BOT.name, "shop", ""]
