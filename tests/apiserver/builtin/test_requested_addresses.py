"""Cluster IPs and node ports that services request, keep and release, on both servers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.client import Client
from kubeloop.meta.errors import ApiError, Invalid

pytestmark = pytest.mark.server


async def send(client: Client, method: str, path: str, body: Any = None, content: str = "application/json") -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    answer = await client.transport.request(method, path, body=data, headers={"Content-Type": content} if data else None)
    found: dict[str, Any] = json.loads(answer.body)
    return found


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def refusal(client: Client, path: str, body: dict[str, Any]) -> tuple[int, str]:
    with pytest.raises(ApiError) as refused:
        await send(client, "POST", path, body)
    return refused.value.status.code, refused.value.status.message


async def test_what_a_service_has_is_taken_for_one_of_its_name_too(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    made = await send(client, "POST", path, service("a", type="NodePort"))
    address, port = made["spec"]["clusterIP"], made["spec"]["ports"][0]["nodePort"]
    code, why = await refusal(client, path, service("a", clusterIP=address))
    assert (code, "provided IP is already allocated" in why) == (422, True)
    code, why = await refusal(client, path, service("a", type="NodePort", ports=[{"port": 80, "nodePort": port}]))
    assert (code, "provided port is already allocated" in why) == (422, True)
    assert (await refusal(client, path, service("a")))[0] == 409


async def test_a_dry_run_does_not_look_whether_an_address_is_taken(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    made = await send(client, "POST", path, service("a"))
    dry = await send(client, "POST", f"{path}?dryRun=All", service("b", clusterIP=made["spec"]["clusterIP"]))
    assert dry["spec"]["clusterIP"] == made["spec"]["clusterIP"]


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        pytest.param({"allocateLoadBalancerNodePorts": False}, True, id="a Service that needs no more node ports keeps the allocated ones"),
        pytest.param({"type": "ClusterIP"}, False, id="a type without node ports loses them"),
        pytest.param({"type": "ClusterIP", "ports": [{"port": 80, "name": "x"}]}, False, id="and so do ports that change besides"),
    ],
)
async def test_node_ports_of_a_balanced_service(client: Client, namespace: str, change: dict[str, Any], kept: bool) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    made = await send(client, "POST", path, service("a", type="LoadBalancer", ports=[{"port": 80}, {"port": 81, "name": "q"}][:1]))
    changed = await send(client, "PATCH", f"{path}/a", {"spec": change}, "application/merge-patch+json")
    (port,) = changed["spec"]["ports"]
    assert port.get("nodePort") == (made["spec"]["ports"][0]["nodePort"] if kept else None)


async def test_the_finalizers_of_a_namespace_are_checked(client: Client, namespace: str) -> None:
    body = {"metadata": {"name": namespace}, "spec": {"finalizers": ["odd"]}}
    with pytest.raises(Invalid, match=r"spec.finalizers\[0\].*neither a standard finalizer name nor is it fully qualified"):
        await send(client, "PUT", f"/api/v1/namespaces/{namespace}/finalize", body)
