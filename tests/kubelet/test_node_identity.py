"""The credentials of a node do for that node only: certificates, objects and pods of other nodes are refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kubeloop.api.core.v1 import Node, Pod
from kubeloop.client import Client
from kubeloop.config import load_config
from kubeloop.kubelet.credentials import node_config, request_certificate
from kubeloop.meta import Forbidden
from kubeloop.transport import Transport
from tests.kubelet.conftest import ProcessCluster, inner_kubelet
from tests.kubelet.test_process_pods import is_ready, reasons, shell_pod, until, wait

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(120)]


async def test_a_node_changes_only_itself_and_its_pods(client: Client, cluster: ProcessCluster) -> None:
    await client.create(shell_pod("foreign", "sleep 1000", node="kubeloop-node"))
    await wait(client, "foreign", is_ready)
    config = await node_config(load_config(cluster.kubeconfig), "worker", cluster.folder / "worker" / "pki")
    async with Client(Transport(config)) as node:
        own = node.in_namespace(client.namespace or "")
        await own.patch(Node, "worker", {"metadata": {"annotations": {"checked": "yes"}}})
        with pytest.raises(Forbidden, match='node "worker" is not allowed to modify node "kubeloop-node"'):
            await own.patch(Node, "kubeloop-node", {"metadata": {"annotations": {"taken": "over"}}})
        with pytest.raises(Forbidden):
            await own.patch(Pod, "foreign", {"status": {"phase": "Failed"}}, subresource="status")
        with pytest.raises(Forbidden):
            await own.delete(Pod, "foreign", grace_period_seconds=0)


async def test_a_kubelet_gets_no_certificate_for_another_node(client: Client, cluster: ProcessCluster) -> None:
    config = await node_config(load_config(cluster.kubeconfig), "worker", cluster.folder / "worker" / "pki")
    async with Client(Transport(config)) as node:
        with pytest.raises(Forbidden, match=r"can only create a node CSR with CN=system:node:worker"):
            await request_certificate(node, "kubeloop-node", "kubernetes.io/kube-apiserver-client-kubelet", "client auth")


async def test_folders_that_cannot_be_written_are_reasons_of_the_pod(client: Client, cluster: ProcessCluster, tmp_path: Path) -> None:
    async with inner_kubelet(cluster, "inner-folders", tmp_path):
        (tmp_path / "inner-folders" / "logs").write_text("a file in the place of the folder of logs")
        await client.create(shell_pod("logless", "sleep 1000", node="inner-folders", terminationGracePeriodSeconds=0))
        status = await wait(client, "logless", lambda status: "CreateContainerError" in json.dumps(status.get("containerStatuses")))
        [main] = status["containerStatuses"]
        assert "cannot write the log" in main["state"]["waiting"]["message"]
        (tmp_path / "inner-folders" / "logs").unlink()
        await wait(client, "logless", is_ready)
        pods = tmp_path / "inner-folders" / "pods"
        await asyncio.to_thread(pods.rename, tmp_path / "kept")
        pods.write_text("a file in the place of the folder of pods")
        await client.create(shell_pod("homeless", "sleep 1000", node="inner-folders"))

        async def reported() -> bool:
            return "error making pod data directories" in (await reasons(client, "homeless")).get("FailedToMakePodDataDirectories", "")

        await until(reported, timeout=40)
        assert (await client.get(Pod, "homeless")).status.phase == "Pending"
        pods.unlink()
        await asyncio.to_thread((tmp_path / "kept").rename, pods)
        await wait(client, "homeless", is_ready)
        for name in ("logless", "homeless"):
            await client.delete(Pod, name)
            await client.wait_gone(Pod, name, timeout=40)
