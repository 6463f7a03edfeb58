"""The subresources ``/proxy`` of pods, services and nodes lead to process pods and their kubelets, and to nothing else of this machine."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.api.core.v1 import Endpoints, Node, Pod, Service
from kubeloop.client import Client
from kubeloop.meta import BadRequest
from tests.kubelet.test_process_pods import TIMEOUT, is_ready, wait

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(120)]


async def read(client: Client, path: str) -> str:
    return (await client.transport.request("GET", path)).body.decode()


async def test_pods_and_services_are_reached_through_the_server(client: Client) -> None:
    ports = [{"name": "http", "containerPort": 8080}]
    probe = {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1}
    container = {"name": "web", "image": "web:1", "ports": ports, "readinessProbe": probe}
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    await client.create(Pod.from_dict({"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": spec}))
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    await client.create(Service.from_dict({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": ports}}))
    await wait(client, "web", is_ready)
    await client.wait_for(Endpoints, "web", lambda endpoints: any(subset.addresses for subset in endpoints.subsets), timeout=TIMEOUT)
    for reference in ("pods/web", "pods/web:8080", "pods/http:web:8080", "services/web:80", "services/web:http"):
        assert await read(client, f"/api/v1/namespaces/{client.namespace}/{reference}/proxy/") == "first", reference


async def test_the_kubelet_of_a_node_is_reached_and_its_other_ports_are_not(client: Client) -> None:
    assert await read(client, "/api/v1/nodes/kubeloop-node/proxy/healthz") == "ok"
    node = (await client.get(Node, "kubeloop-node")).to_dict()
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    assert "kubelet_running_pods" in await read(client, f"/api/v1/nodes/kubeloop-node:{port}/proxy/metrics")
    with pytest.raises(BadRequest, match="address not allowed"):
        await read(client, f"/api/v1/nodes/kubeloop-node:{port + 1}/proxy/")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.128.0.1", "127.63.255.255", "169.254.169.254", "::1"])
async def test_a_pod_with_an_address_of_this_machines_own_is_not_reached(client: Client, address: str) -> None:
    spec: dict[str, Any] = {"nodeName": "none", "containers": [{"name": "main", "image": "idle"}]}
    await client.create(Pod.from_dict({"metadata": {"name": "feigned"}, "spec": spec}))
    status = {"podIP": address, "podIPs": [{"ip": address}]}
    await client.patch(Pod, "feigned", {"status": status}, subresource="status")
    with pytest.raises(BadRequest, match="address not allowed"):
        await read(client, f"/api/v1/namespaces/{client.namespace}/pods/feigned:80/proxy/")
