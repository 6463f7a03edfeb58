"""When a cluster has settled: its controllers have done for it what every test and every pod relies on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kubeloop.api.core.v1 import Namespace, Node, ServiceAccount
from kubeloop.api.rbac.v1 import ClusterRole
from kubeloop.client import Client
from kubeloop.controlplane.service_account import ACCOUNT
from kubeloop.meta import NotFound

#: Seconds for each condition.
TIMEOUT = 120.0


async def wait_settled(client: Client, nodes: Iterable[str] = (), *, timeout: float = TIMEOUT) -> None:
    """Return when pods can be created in every namespace and scheduled, and the built-in roles are complete.

    Args:
        client: Of a cluster whose controllers run.
        nodes: Names of the nodes that must be ready and without taints.
        timeout: Seconds.

    Raises:
        DeadlineError: The cluster has not settled in time; the text says what is missing.
    """
    namespaces = [one.metadata.name async for one in client.list(Namespace) if one.status.phase != "Terminating"]
    roles = [one.metadata.name async for one in client.list(ClusterRole) if one.aggregation_rule is not None]
    async with asyncio.TaskGroup() as waits:
        for namespace in namespaces:
            waits.create_task(wait_account(client, namespace, timeout=timeout))
        for node in nodes:
            waits.create_task(_wait_node(client, node, timeout))
        for role in roles:
            waits.create_task(_wait_role(client, role, timeout))


async def wait_account(client: Client, namespace: str, *, timeout: float = TIMEOUT) -> None:
    """Return when a namespace has its ``default`` ServiceAccount, without which admission refuses pods; or when the namespace is gone."""
    try:
        await client.wait_for(ServiceAccount, ACCOUNT, bool, namespace=namespace, timeout=timeout)
    except NotFound:
        return


async def _wait_node(client: Client, name: str, timeout: float) -> None:
    await client.wait_for(Node, name, _takes_pods, timeout=timeout)


async def _wait_role(client: Client, name: str, timeout: float) -> None:
    await client.wait_for(ClusterRole, name, lambda role: bool(role.rules), timeout=timeout)


def _takes_pods(node: Node) -> bool:
    return not node.spec.taints and any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)
