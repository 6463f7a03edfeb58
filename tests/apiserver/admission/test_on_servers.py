"""Admission under load, and the order of its steps, on both servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from kubeloop.client import Client
from kubeloop.meta.errors import AlreadyExists, Conflict, Forbidden

pytestmark = pytest.mark.server


async def send(client: Client, method: str, path: str, body: Any = None, content: str = "application/json") -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    answer = await client.transport.request(method, path, body=data, headers={"Content-Type": content} if data else None)
    found: dict[str, Any] = json.loads(answer.body)
    return found


async def set_quota(client: Client, namespace: str, hard: dict[str, str], used: dict[str, str]) -> None:
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    await send(client, "POST", path, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    status = {"status": {"hard": hard, "used": used}}
    await send(client, "PATCH", f"{path}/q/status", status, "application/merge-patch+json")
    # A real server's admission knows it a moment later.
    async with asyncio.timeout(30):
        while True:
            try:
                await send(client, "POST", f"/api/v1/namespaces/{namespace}/secrets?dryRun=All", {"metadata": {"name": "probe"}})
            except Forbidden:
                return
            await asyncio.sleep(0.05)


async def test_writes_at_once_never_use_more_than_a_quota_leaves(client: Client, namespace: str) -> None:
    hard = {"count/leases.coordination.k8s.io": "5", "secrets": "0"}
    await set_quota(client, namespace, hard, {"count/leases.coordination.k8s.io": "0", "secrets": "0"})

    async def create(number: int) -> bool:
        try:
            path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
            await send(client, "POST", path, {"metadata": {"name": f"l{number}"}})
        except (Forbidden, Conflict):  # the latter when others write the quota too often for admission's patience
            return False
        return True

    made = await asyncio.gather(*(create(number) for number in range(20)))
    found = await send(client, "GET", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
    assert sum(made) == len(found["items"]) == 5
    quota = await send(client, "GET", f"/api/v1/namespaces/{namespace}/resourcequotas/q")
    assert quota["status"]["used"]["count/leases.coordination.k8s.io"] == "5"


async def test_a_pod_waits_for_the_account_that_is_about_to_be_made(client: Client, namespace: str) -> None:
    name = f"{namespace}-late"
    await send(client, "POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    making = asyncio.create_task(send(client, "POST", f"/api/v1/namespaces/{name}/pods", pod))
    with contextlib.suppress(AlreadyExists):  # where a controller was faster
        await send(client, "POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
    made = await making
    assert made["spec"]["serviceAccountName"] == "default"
    assert [volume["name"].startswith("kube-api-access-") for volume in made["spec"]["volumes"]] == [True]
    await send(client, "DELETE", f"/api/v1/namespaces/{name}")


@pytest.mark.parametrize(
    ("requests", "labels", "why"),
    [
        pytest.param({"cpu": "1"}, {}, "", id="a pod that still fits its node grows"),
        pytest.param(
            {"cpu": "3", "memory": "2Gi"},
            {},
            "node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000; "
            "memory, requested: 2147483648, allocatable: 1073741824",
            id="a pod that does not is refused",
        ),
        pytest.param(
            {"cpu": "1"},
            {"kubernetes.io/os": "windows"},
            'pod resize is only supported on linux nodes, node "{}" is "windows"',
            id="elsewhere none",
        ),
    ],
)
async def test_of_pods_that_are_resized(client: Client, namespace: str, requests: dict[str, str], labels: dict[str, str], why: str) -> None:
    node = f"{namespace}-node"
    pods = f"/api/v1/namespaces/{namespace}/pods"
    # No scheduler and no kubelet may use it.
    spec = {"unschedulable": True, "taints": [{"key": "example.com/none", "effect": "NoSchedule"}]}
    await send(client, "POST", "/api/v1/nodes", {"metadata": {"name": node, "labels": labels}, "spec": spec})
    room = {"status": {"capacity": {"cpu": "2", "memory": "1Gi"}, "allocatable": {"cpu": "2", "memory": "1Gi"}}}
    await send(client, "PATCH", f"/api/v1/nodes/{node}/status", room, "application/merge-patch+json")
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "1Mi"}}}
    await send(client, "POST", pods, {"metadata": {"name": "p"}, "spec": {"nodeName": node, "containers": [container]}})
    change = {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}
    try:
        if why:
            # A real server's admission knows the node's status a moment later.
            async with asyncio.timeout(30):
                while (found := await _refusal(client, f"{pods}/p/resize", change)) != f'pods "p" is forbidden: {why.format(node)}':
                    assert "forbidden" in found or "not found" in found
                    await asyncio.sleep(0.05)
        else:
            await _until_done(client, f"{pods}/p/resize", change)
    finally:
        await send(client, "DELETE", f"{pods}/p?gracePeriodSeconds=0")
        await send(client, "DELETE", f"/api/v1/nodes/{node}")


async def _refusal(client: Client, path: str, change: dict[str, Any]) -> str:
    with pytest.raises(Forbidden) as refusal:
        await send(client, "PATCH", path, change, "application/strategic-merge-patch+json")
    return refusal.value.status.message


async def _until_done(client: Client, path: str, change: dict[str, Any]) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await send(client, "PATCH", path, change, "application/strategic-merge-patch+json")
            except Forbidden:
                await asyncio.sleep(0.05)
            else:
                return


@pytest.mark.parametrize(
    ("declared", "change", "lacking"),
    [
        pytest.param(
            [], {"resources": {"requests": {"cpu": "1500m"}}}, "InPlacePodLevelResourcesVerticalScaling", id="resources of a whole pod"
        ),
        pytest.param(
            ["InPlacePodLevelResourcesVerticalScaling"],
            {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "50m"}}}]},
            "InPlacePodVerticalScalingInitContainers",
            id="resources of a container that runs before the others",
        ),
        pytest.param([], {"initContainers": [{"name": "s", "resources": {"requests": {"cpu": "50m"}}}]}, "", id="not those of a sidecar"),
        pytest.param(
            ["InPlacePodLevelResourcesVerticalScaling"], {"resources": {"requests": {"cpu": "1500m"}}}, "", id="nor what the node declares"
        ),
    ],
)
async def test_nodes_declare_what_may_be_resized_there(
    client: Client, namespace: str, declared: list[str], change: dict[str, Any], lacking: str
) -> None:
    node, pods = f"{namespace}-node", f"/api/v1/namespaces/{namespace}/pods"
    spec = {"unschedulable": True, "taints": [{"key": "example.com/none", "effect": "NoSchedule"}]}
    await send(client, "POST", "/api/v1/nodes", {"metadata": {"name": node}, "spec": spec})
    room = {name: {"cpu": "8", "memory": "8Gi"} for name in ("capacity", "allocatable")}
    status = {"status": {**room, "declaredFeatures": declared}}
    await send(client, "PATCH", f"/api/v1/nodes/{node}/status", status, "application/merge-patch+json")
    own = {"requests": {"cpu": "100m", "memory": "1Mi"}}
    pod = {
        "nodeName": node,
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        "containers": [{"name": "c", "image": "i", "resources": own}],
        "initContainers": [
            {"name": "i", "image": "i", "resources": own},
            {"name": "s", "image": "i", "resources": own, "restartPolicy": "Always"},
        ],
    }
    await send(client, "POST", pods, {"metadata": {"name": "p"}, "spec": pod})
    try:
        if lacking:
            why = f'pod update requires features {lacking} which are not available on node "{node}"'
            async with asyncio.timeout(30):  # as above
                while await _refusal(client, f"{pods}/p/resize", {"spec": change}) != f'pods "p" is forbidden: {why}':
                    await asyncio.sleep(0.05)
        else:
            await _until_done(client, f"{pods}/p/resize", {"spec": change})
    finally:
        await send(client, "DELETE", f"{pods}/p?gracePeriodSeconds=0")
        await send(client, "DELETE", f"/api/v1/nodes/{node}")
