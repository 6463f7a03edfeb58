"""Plug-ins that are off by default, and rules for nodes and owner references."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeloop.apiserver.admission.plugins import AdmissionOptions
from kubeloop.client import Client
from kubeloop.endpoints.access import MASTERS
from kubeloop.meta.errors import ApiError
from kubeloop.testing import HandlerServer

POD: dict[str, Any] = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
PODS = "/api/v1/namespaces/default/pods"


async def send(client: Client, method: str, path: str, body: Any = None, content: str = "application/json") -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    answer = await client.transport.request(method, path, body=data, headers={"Content-Type": content} if data else None)
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def refused(client: Client, method: str, path: str, body: Any = None, content: str = "application/json") -> str:
    with pytest.raises(ApiError) as refusal:
        await send(client, method, path, body, content)
    return refusal.value.status.message


@asynccontextmanager
async def server_with(*names: str, disable: tuple[str, ...] = ("ServiceAccount",)) -> AsyncIterator[HandlerServer]:
    async with HandlerServer(admission=AdmissionOptions(names, disable)) as server:
        yield server


class TestNodes:
    """A kubelet that may do everything, but for the plug-in."""

    @pytest.fixture
    async def server(self) -> AsyncIterator[HandlerServer]:
        async with server_with("NodeRestriction") as server:
            yield server

    @pytest.fixture
    def node(self, server: HandlerServer) -> Client:
        return server.client(user="system:node:n1", groups=("system:nodes", MASTERS))

    async def test_changes_its_own_node_and_none_else(self, node: Client) -> None:
        await send(node, "POST", "/api/v1/nodes", {"metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux"}}})
        found = await refused(node, "POST", "/api/v1/nodes", {"metadata": {"name": "n2"}})
        assert found == 'nodes "n2" is forbidden: node "n1" is not allowed to modify node "n2"'

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            pytest.param(
                {"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b", "x.k8s.io/y": "z", "own": "1"}}},
                "is not allowed to modify labels: node-restriction.kubernetes.io/a, x.k8s.io/y",
                id="no labels that say where pods may go",
            ),
            pytest.param(
                {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, 'node "n1" is not allowed to modify taints', id="no taints"
            ),
        ],
    )
    async def test_sets(self, node: Client, change: dict[str, Any], why: str) -> None:
        await send(node, "POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
        found = await refused(node, "PATCH", "/api/v1/nodes/n1", change, "application/merge-patch+json")
        assert found == f'nodes "n1" is forbidden: {why}'

    async def test_creates_only_mirror_pods_of_the_same_node(self, node: Client) -> None:
        made = await send(node, "POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
        assert 'pod does not have "kubernetes.io/config.mirror" annotation' in await refused(node, "POST", PODS, POD)
        owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": made["metadata"]["uid"], "controller": True}
        mirror = {
            "metadata": {"name": "m", "annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner]},
            "spec": {**POD["spec"], "nodeName": "n1"},
        }
        elsewhere = {**mirror, "spec": {**POD["spec"], "nodeName": "n2"}}
        assert 'node "n1" can only create pods with spec.nodeName set to itself' in await refused(node, "POST", PODS, elsewhere)
        secret = {**mirror, "spec": {**mirror["spec"], "volumes": [{"name": "v", "secret": {"secretName": "s"}}]}}
        assert 'node "n1" can not create pods that reference secrets' in await refused(node, "POST", PODS, secret)
        assert (await send(node, "POST", PODS, mirror))["metadata"]["name"] == "m"

    async def test_renews_its_own_lease(self, node: Client) -> None:
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        await send(node, "POST", leases, {"metadata": {"name": "n1"}})
        why = "can only access node lease with the same name as the requesting node"
        assert why in await refused(node, "POST", leases, {"metadata": {"name": "n2"}})
        elsewhere = leases.replace("kube-node-lease", "default")
        assert "can only access leases in the" in await refused(node, "POST", elsewhere, {"metadata": {"name": "n1"}})

    async def test_asks_for_tokens_of_the_audiences_that_its_pods_mount(self, server: HandlerServer) -> None:
        admin, kubelet = server.client(), server.client(user="system:node:n1", groups=("system:nodes",))
        await send(admin, "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "builder"}})
        token = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
        spec = {**POD["spec"], "nodeName": "n1", "serviceAccountName": "builder", "volumes": [token]}
        pod = await send(admin, "POST", PODS, {**POD, "spec": spec})
        bound = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]}
        path = "/api/v1/namespaces/default/serviceaccounts/builder/token"
        made = await send(kubelet, "POST", path, {"spec": {"boundObjectRef": bound}})
        assert made["spec"]["audiences"] == ["https://kubernetes.default.svc.cluster.local"]
        found = await refused(kubelet, "POST", path, {"spec": {"boundObjectRef": bound, "audiences": ["vault"]}})
        assert 'audience "vault" not found in pod spec volume' in found
        assert "node requested token not bound to a pod" in await refused(kubelet, "POST", path, {"spec": {"expirationSeconds": 1}})

    async def test_others_are_not_concerned(self, server: HandlerServer) -> None:
        await send(server.client(), "POST", "/api/v1/nodes", {"metadata": {"name": "n2", "labels": {"x.k8s.io/y": "z"}}})


async def test_a_user_who_cannot_delete_an_owner_cannot_block_its_deletion() -> None:
    async with server_with("OwnerReferencesPermissionEnforcement") as server:
        admin = server.client()
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "update", "patch", "get"]}]
        roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        await send(admin, "POST", f"{roles}/roles", {"metadata": {"name": "writer"}, "rules": rules})
        binding = {
            "metadata": {"name": "writer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
            "subjects": [{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}],
        }
        await send(admin, "POST", f"{roles}/rolebindings", binding)
        eve = server.client(user="eve", groups=("system:authenticated",))
        maps = "/api/v1/namespaces/default/configmaps"
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
        await send(eve, "POST", maps, {"metadata": {"name": "a", "ownerReferences": [owner]}})
        blocking = {"metadata": {"name": "b", "ownerReferences": [{**owner, "blockOwnerDeletion": True}]}}
        assert "cannot set blockOwnerDeletion if an ownerReference refers to a resource" in await refused(eve, "POST", maps, blocking)
        change: dict[str, Any] = {"metadata": {"ownerReferences": []}}
        found = await refused(eve, "PATCH", f"{maps}/a", change, "application/merge-patch+json")
        assert "cannot set an ownerRef on a resource you can't delete" in found
        await send(admin, "POST", maps, blocking)


def _with(**spec: Any) -> dict[str, Any]:
    return {**POD, "spec": {**POD["spec"], **spec}}


@pytest.mark.parametrize(
    ("name", "body", "holds"),
    [
        pytest.param(
            "AlwaysPullImages", _with(), lambda spec: spec["containers"][0]["imagePullPolicy"] == "Always", id="images are always pulled"
        ),
        pytest.param(
            "ExtendedResourceToleration",
            _with(containers=[{"name": "c", "image": "i", "resources": {"limits": {"x.example/gpu": "1"}}}]),
            lambda spec: {"key": "x.example/gpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"],
            id="extended resources are tolerated",
        ),
    ],
)
async def test_pods(name: str, body: dict[str, Any], holds: Callable[[dict[str, Any]], bool]) -> None:
    async with server_with(name) as server:
        assert holds((await send(server.client(), "POST", PODS, body))["spec"])


@pytest.mark.parametrize(
    ("name", "path", "body", "why"),
    [
        pytest.param("AlwaysDeny", PODS, POD, "admission control is denying all modifications", id="everything"),
        pytest.param(
            "DenyServiceExternalIPs",
            "/api/v1/namespaces/default/services",
            {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "externalIPs": ["1.2.3.4"]}},
            "Use of external IPs is denied by admission control",
            id="addresses of others",
        ),
        pytest.param(
            "LimitPodHardAntiAffinityTopology",
            PODS,
            _with(
                affinity={
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
                        ]
                    }
                }
            ),
            "has TopologyKey zone but only key kubernetes.io/hostname is allowed",
            id="whole zones for oneself",
        ),
        pytest.param(
            "NamespaceExists",
            "/api/v1/namespaces/none/configmaps",
            {"metadata": {"name": "a"}},
            'namespaces "none" not found',
            id="what has no namespace",
        ),
    ],
)
async def test_it_refuses(name: str, path: str, body: dict[str, Any], why: str) -> None:
    disable = ("ServiceAccount", *(("NamespaceLifecycle",) if name == "NamespaceExists" else ()))
    async with server_with(name, disable=disable) as server:
        assert why in await refused(server.client(), "POST", path, body)


async def test_a_namespace_is_made_for_an_object_that_is_created_in_it() -> None:
    async with server_with("NamespaceAutoProvision") as server:
        client = server.client()
        await send(client, "POST", "/api/v1/namespaces/fresh/configmaps", {"metadata": {"name": "a"}})
        assert (await send(client, "GET", "/api/v1/namespaces/fresh"))["status"]["phase"] == "Active"
