"""kubectl top shows the usage of simulated nodes and pods, which an extension API server behind an APIService serves."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from kubeloop.api.apiregistration.v1 import APIService
from kubeloop.api.core.v1 import Node, Pod
from kubeloop.client import Client
from kubeloop.controller import Background, Manager
from kubeloop.controlplane.metrics.server import MetricsServer
from kubeloop.controlplane.simulation.annotations import CPU_USAGE, MEMORY_USAGE
from kubeloop.controlplane.simulation.metrics import SimulatedUsage
from kubeloop.controlplane.simulation.node_templates import NodeTemplate
from kubeloop.controlplane.simulation.nodes import SimulatedNodes
from kubeloop.controlplane.simulation.usage import UsageFunction
from kubeloop.transport import Transport
from tests.controlplane.workloads import is_ready, read
from tests.kubectl.runner import Kubectl
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.embedded

API_SERVICE = "v1beta1.metrics.k8s.io"


def is_available(service: APIService) -> bool:
    return any(one.type == "Available" and one.status == "True" for one in service.status.conditions)


async def test_kubectl_top_shows_simulated_usage(client: Client, bare_server: ServerUnderTest, tmp_path: Path) -> None:
    node = f"{client.namespace}-metered"
    simulated = SimulatedNodes([NodeTemplate(node, usage={"cpu": UsageFunction(0.5)})])
    kubectl = Kubectl(Path(bare_server.kubeconfig), tmp_path, client.namespace or "")
    async with Client(Transport(bare_server.config)) as own:
        async with Manager(own, [simulated, Background(MetricsServer(SimulatedUsage(simulated)), name="metrics-server")], grace=10):
            annotations = {CPU_USAGE: "a=250m,b=100m", MEMORY_USAGE: "64Mi"}
            containers = [{"name": name, "image": "x:1"} for name in "ab"]
            metadata = {"name": "p", "annotations": annotations}
            await client.create(read(Pod, {"metadata": metadata, "spec": {"containers": containers, "nodeName": node}}))
            await client.wait_for(Pod, "p", is_ready, timeout=60)
            await client.wait_for(APIService, API_SERVICE, is_available, timeout=60)
            usage = await asyncio.to_thread(kubectl.run, "top", "pods", "--containers", "--no-headers")
            assert [line.split() for line in usage.out.splitlines()] == [["p", "a", "250m", "64Mi"], ["p", "b", "100m", "64Mi"]]
            usage = await asyncio.to_thread(kubectl.run, "top", "node", node, "--no-headers")
            assert usage.out.split() == [node, "850m", "1%", "128Mi", "0%"]
            one = await asyncio.to_thread(
                kubectl.run, "get", "--raw", f"/apis/metrics.k8s.io/v1beta1/namespaces/{client.namespace}/pods/none"
            )
            assert f'podmetrics.metrics.k8s.io "{client.namespace}/none" not found' in one.err
            await client.delete(Pod, "p", grace_period_seconds=0)
        await own.wait_gone(APIService, API_SERVICE, timeout=60)
        await own.delete(Node, node)


async def test_strangers_are_refused(client: Client, bare_server: ServerUnderTest) -> None:
    """The extension server is reached only through the API server, which authorizes users."""
    simulated = SimulatedNodes([f"{client.namespace}-metered"])
    async with Client(Transport(bare_server.config)) as own:
        async with Manager(own, [simulated, Background(MetricsServer(SimulatedUsage(simulated)), name="metrics-server")], grace=10):
            service = await client.wait_for(APIService, API_SERVICE, is_available, timeout=60)
            assert service.spec.service is not None
            assert await answer_to_a_stranger(service.spec.service.port or 0) == b""
        await own.delete(Node, f"{client.namespace}-metered")


async def answer_to_a_stranger(port: int) -> bytes:
    """Return the answer to a request without a client certificate; empty if the server closes the connection."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except OSError:
        return b""
    try:
        writer.write(b"GET /apis/metrics.k8s.io/v1beta1/nodes HTTP/1.1\r\nHost: x\r\n\r\n")
        return await reader.read()
    except OSError:
        return b""
    finally:
        writer.transport.abort()
