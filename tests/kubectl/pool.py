"""Two simulated nodes and the metrics of all, for the transcripts of ``transcripts/simulated``: the nodes NAMESPACE-a and NAMESPACE-b."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from kubeloop.api.core.v1 import Namespace, Node, ServiceAccount
from kubeloop.client import Client
from kubeloop.controller import Background, Manager
from kubeloop.controlplane.metrics.server import MetricsServer
from kubeloop.controlplane.simulation.metrics import SimulatedUsage
from kubeloop.controlplane.simulation.node_templates import NodeTemplate
from kubeloop.controlplane.simulation.nodes import SimulatedNodes
from kubeloop.controlplane.simulation.usage import UsageFunction
from kubeloop.meta import ObjectMeta


@contextlib.asynccontextmanager
async def namespace_with_nodes(client: Client, name: str, *unlabelled: str) -> AsyncIterator[None]:
    """Run the nodes of a new namespace, with the label ``pool=NAMESPACE``, and other nodes; afterwards all of it is deleted.

    Args:
        client: The client of the cluster.
        name: The name of the namespace.
        unlabelled: Names of nodes without the label.
    """
    usage = {"cpu": UsageFunction(0.5), "memory": UsageFunction(float(1 << 30))}
    capacity = {"cpu": "8", "memory": "16Gi"}
    nodes = [NodeTemplate(f"{name}-{letter}", {"pool": name}, capacity=capacity, usage=usage) for letter in "ab"]
    nodes += [NodeTemplate(other) for other in unlabelled]
    simulated = SimulatedNodes(nodes)
    async with Manager(client, [simulated, Background(MetricsServer(SimulatedUsage(simulated)), name="metrics-server")], grace=10):
        await client.create(Namespace(metadata=ObjectMeta(name=name)))
        await client.wait_for(ServiceAccount, "default", bool, timeout=60, namespace=name)
        for node in nodes:
            await client.wait_for(Node, node.name, _is_schedulable, timeout=60)
        yield
        # Before the nodes stop: they end the pods.
        await client.delete(Namespace, name)
        await client.wait_gone(Namespace, name, timeout=120)
    for node in nodes:
        await client.delete(Node, node.name)


def _is_schedulable(node: Node) -> bool:
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
    return ready and not node.spec.taints
