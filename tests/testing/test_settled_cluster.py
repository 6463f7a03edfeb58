"""A cluster that says it is ready takes pods at once, in each of its namespaces."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.api.core.v1 import Container, Namespace, Node, Pod, PodSpec, ServiceAccount
from kubeloop.api.rbac.v1 import ClusterRole
from kubeloop.client import Client
from kubeloop.controller import Manager
from kubeloop.controlplane import controllers
from kubeloop.controlplane.run import wait_settled
from kubeloop.meta import DeadlineError, ObjectMeta
from kubeloop.testing import LocalCluster, TlsTestServer
from kubeloop.testing.kube_cluster import shared_server
from kubeloop.transport import Transport

pytestmark = pytest.mark.embedded


def pod(name: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=name), spec=PodSpec(containers=[Container(name="c", image="none")]))


async def test_a_local_cluster_takes_pods_as_soon_as_it_is_entered() -> None:
    async with LocalCluster() as cluster:
        client = cluster.client
        await client.create(pod("first"))
        namespaces = [one.metadata.name async for one in client.list(Namespace)]
        for namespace in namespaces:
            await client.get(ServiceAccount, "default", namespace=namespace)
        [node] = [one async for one in client.list(Node)]
        assert not node.spec.taints
        roles = [role async for role in client.list(ClusterRole) if role.aggregation_rule is not None]
        assert all(role.rules for role in roles)
        assert (await client.transport.request("GET", "/readyz/controllers")).body == b"ok"
        # The namespaces of the pytest plugin's tests.
        async with shared_server(cluster.kubeconfig, "of-a-test") as shared:
            await shared.client().create(pod("first"))


async def test_a_namespace_of_a_cluster_without_controllers_needs_no_account() -> None:
    async with LocalCluster(controllers=False) as cluster, shared_server(cluster.kubeconfig, "of-a-test") as shared:
        await shared.client().create(pod("first"))


async def test_a_cluster_has_not_settled_while_an_account_a_node_or_the_rules_of_a_role_are_missing() -> None:
    async with TlsTestServer() as server, Client(Transport(server.config)) as client:
        with pytest.raises(ExceptionGroup) as caught:
            await wait_settled(client, ["node-1"], timeout=0.2)
        assert all(isinstance(error, DeadlineError) for error in caught.value.exceptions)
        settling = asyncio.ensure_future(wait_settled(client, ["node-1"], timeout=60))
        async with Manager(client, controllers(nodes=["node-1"])):
            await settling
        await client.get(Node, "node-1")
