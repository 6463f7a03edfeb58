"""The objects that a new server contains, on both servers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client
from kubeloop.transport import Transport
from tests.servers import ServerUnderTest

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_FLOW = "/apis/flowcontrol.apiserver.k8s.io/v1"
_EVERYTHING = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}]
_MASTERS = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:masters"}
_AGGREGATED = {"clusterRoleSelectors": [{"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}]}

pytestmark = pytest.mark.server


async def _get(server: ServerUnderTest, path: str) -> Any:
    async with Transport(server.config) as transport:
        return json.loads((await transport.request("GET", path)).body)


@pytest.mark.parametrize(
    ("path", "place", "expected"),
    [
        pytest.param(f"{_RBAC}/clusterroles/cluster-admin", "rules", _EVERYTHING, id="administrators may do everything"),
        pytest.param(f"{_RBAC}/clusterrolebindings/cluster-admin", "subjects", [_MASTERS], id="masters are administrators"),
        pytest.param(f"{_RBAC}/clusterroles/view", "aggregationRule", _AGGREGATED, id="the role of readers is put together from others"),
        pytest.param(
            f"{_RBAC}/namespaces/kube-system/rolebindings/system::leader-locking-kube-scheduler",
            "roleRef",
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "system::leader-locking-kube-scheduler"},
            id="roles of one namespace are bound in it",
        ),
        pytest.param(
            f"{_FLOW}/prioritylevelconfigurations/exempt",
            "spec",
            {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}},
            id="a priority level is exempt from limits",
        ),
        pytest.param(f"{_FLOW}/flowschemas/probes", "spec.matchingPrecedence", 2, id="probes are exempt early"),
        pytest.param("/apis/networking.k8s.io/v1/servicecidrs/kubernetes", "spec.cidrs", ["10.0.0.0/24"], id="cluster IPs have a range"),
        pytest.param(
            "/apis/apiregistration.k8s.io/v1/apiservices/v2.autoscaling",
            "spec",
            {"group": "autoscaling", "version": "v2", "groupPriorityMinimum": 17500, "versionPriority": 30},
            id="each version served has an API service",
        ),
    ],
)
async def test_is_there_from_the_start(server: ServerUnderTest, path: str, place: str, expected: Any) -> None:
    found = await _get(server, path)
    for name in place.split("."):
        found = found[name]
    assert found == expected


async def test_every_builtin_group_has_an_api_service_and_all_are_available(server: ServerUnderTest) -> None:
    groups = {one["name"] for one in (await _get(server, "/apis"))["groups"]} - {"apiregistration.k8s.io"}
    services = (await _get(server, "/apis/apiregistration.k8s.io/v1/apiservices"))["items"]
    own = [one for one in services if one["metadata"].get("labels", {}).get("kube-aggregator.kubernetes.io/automanaged") == "onstart"]
    assert {one["spec"].get("group", "") for one in own} - {""} <= groups
    assert {one["status"]["conditions"][0]["status"] for one in own} == {"True"}
    assert len(own) == 21


async def test_default_roles_are_as_many_as_kubernetes_has(server: ServerUnderTest) -> None:
    for resource, count in (("clusterroles", 69), ("clusterrolebindings", 50), ("roles", 7), ("rolebindings", 7)):
        found = (await _get(server, f"{_RBAC}/{resource}?labelSelector=kubernetes.io/bootstrapping=rbac-defaults"))["items"]
        assert len(found) == count, resource


async def test_a_config_map_says_since_when_the_server_tracks_the_use_of_legacy_tokens(client: Client) -> None:
    found = await client.wait_for(
        ConfigMap, "kube-apiserver-legacy-service-account-token-tracking", bool, namespace="kube-system", timeout=30
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found.data["since"])
