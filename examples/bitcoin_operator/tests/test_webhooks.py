"""The webhooks: a table of requests in memory, and kubectl on a server that calls them over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from examples.bitcoin_operator.types import BitcoinNetwork, BitcoinNetworkSpec, BitcoinNetworkStatus
from examples.bitcoin_operator.webhooks import check_scale, check_update, hooks
from kubeloop import Client, Invalid, ObjectMeta
from kubeloop.api.autoscaling.v1 import Scale, ScaleSpec
from kubeloop.client import WriteOptions
from kubeloop.controller.webhooks import Register, WebhookServer
from kubeloop.controller.webhooks.certificates.managed import OwnCertificate
from kubeloop.testing import LocalCluster
from tests.kubectl.runner import Kubectl

ROOT = Path(__file__).parents[1]
DRY_RUN = WriteOptions(dry_run=True)
DELETE_IT = "to remove the network, delete it: kubectl delete bitcoinnetwork my-network"


def network(nodes: int, secret: str = "", status: BitcoinNetworkStatus | None = None) -> BitcoinNetwork:
    metadata = ObjectMeta(name="my-network", namespace="default")
    return BitcoinNetwork(metadata=metadata, spec=BitcoinNetworkSpec(nodes=nodes, secret=secret), status=status or BitcoinNetworkStatus())


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        pytest.param(network(3), network(4), [], id="a network may grow"),
        pytest.param(network(3), network(1), [], id="a network may shrink to one node"),
        pytest.param(network(3), network(0), ["spec.nodes"], id="a network may not shrink from three nodes to none"),
        pytest.param(network(1), network(0), ["spec.nodes"], id="a network may not shrink from one node to none"),
        pytest.param(network(0), network(0), [], id="a network that was created without nodes may stay without nodes"),
        pytest.param(network(0), network(3), [], id="a network that was created without nodes may grow"),
        pytest.param(network(3, "a"), network(3, "a"), [], id="an update of labels passes"),
        pytest.param(network(3, "a"), network(3, "b"), ["spec.secret"], id="nodes run: another Secret is refused"),
        pytest.param(network(3), network(3, "b"), ["spec.secret"], id="nodes run without a Secret: a first Secret is refused"),
        pytest.param(network(3, "a"), network(3), ["spec.secret"], id="nodes run: the removal of the Secret is refused"),
        pytest.param(network(0, "a"), network(0, "b"), [], id="no nodes: another Secret is allowed"),
        pytest.param(network(0, "a"), network(3, "b"), [], id="no nodes: another Secret and the first nodes are allowed together"),
        pytest.param(network(3, "a"), network(0, "b"), ["spec.nodes", "spec.secret"], id="both errors are in one answer"),
        pytest.param(
            network(3, "a", BitcoinNetworkStatus(replicas=0, ready_nodes=0)),
            network(3, "b"),
            ["spec.secret"],
            id="the spec decides whether nodes run: the status may be late",
        ),
    ],
)
async def test_an_update(old: BitcoinNetwork, new: BitcoinNetwork, fields: list[str]) -> None:
    answer = await hooks.review(check_update, new, old=old)
    assert (answer.allowed, list(answer.fields), answer.patch) == (not fields, fields, [])


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        pytest.param(1, 5, [], id="more nodes are allowed"),
        pytest.param(5, 1, [], id="one node is allowed"),
        pytest.param(5, 0, ["spec.replicas"], id="no nodes are refused"),
        pytest.param(0, 0, [], id="a network without nodes may be scaled to none"),
        pytest.param(0, 2, [], id="a network without nodes may be scaled to some"),
    ],
)
async def test_a_scale(old: int, new: int, fields: list[str]) -> None:
    before, after = (
        Scale(metadata=ObjectMeta(name="my-network", namespace="default"), spec=ScaleSpec(replicas=count)) for count in (old, new)
    )
    answer = await hooks.review(check_scale, after, old=before)
    assert (answer.allowed, list(answer.fields)) == (not fields, fields)
    assert answer.allowed or DELETE_IT in answer.message


@pytest.mark.parametrize(
    ("old", "text"),
    [
        pytest.param(
            network(3, "a"),
            "change the data of Secret a (the operator replaces the pods), or delete the network",
            id="with a Secret, the message names both ways",
        ),
        pytest.param(network(3), "started with; delete the network", id="without a Secret, the message names the deletion"),
    ],
)
async def test_the_message_about_a_changed_secret(old: BitcoinNetwork, text: str) -> None:
    answer = await hooks.review(check_update, network(3, "b"), old=old)
    assert text in answer.message


def test_creations_deletions_and_status_updates_cause_no_call() -> None:
    """A network can be created, deleted and reconciled while no webhook server runs."""
    declared = [(hook.gvr.resource, hook.subresource, hook.operations) for hook in hooks.hooks]
    assert declared == [("bitcoinnetworks", "", ("UPDATE",)), ("bitcoinnetworks", "scale", ("UPDATE",))]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A server of this file: other files install the kind, too."""
    with LocalCluster(controllers=False) as found:
        yield found


@pytest.fixture
def kubectl(cluster: LocalCluster, tmp_path: Path) -> Kubectl:
    """kubectl, where the kind is served and my-network has three nodes."""
    kubectl = Kubectl(cluster.kubeconfig, tmp_path)
    kubectl("apply", "-f", str(ROOT / "config" / "default" / "crd.yaml"))
    kubectl("wait", "--for=condition=Established", "crd/bitcoinnetworks.bitcoincontroller.christianb93.github.com", "--timeout=10s")
    kubectl("apply", "-f", str(ROOT / "samples" / "network.yaml"))
    return kubectl


@asynccontextmanager
async def webhooks_served(cluster: LocalCluster) -> AsyncIterator[Client]:
    """Serve the webhooks at an address of this machine, until the API server calls them and afterwards."""
    async with Client.from_config(cluster.kubeconfig) as client:
        server = WebhookServer(hooks, OwnCertificate(["127.0.0.1"]), client=client, port=0, register=Register("bitcoin-controller"))
        async with server, asyncio.timeout(30):
            await wait_until_called(client)
            yield client


async def wait_until_called(client: Client) -> None:
    """Wait for the API server, which learns of a configuration a moment after it is stored."""
    while True:
        try:
            await client.patch(BitcoinNetwork, "my-network", {"spec": {"nodes": 0}}, options=DRY_RUN)
        except Invalid:
            return
        await asyncio.sleep(0.02)


@pytest.mark.embedded
async def test_a_server_calls_the_webhooks_for_writes_by_kubectl(kubectl: Kubectl, cluster: LocalCluster) -> None:
    async def refused(*words: str) -> str:
        return await asyncio.to_thread(kubectl.refused, *words)

    async def done(*words: str) -> str:
        return await asyncio.to_thread(kubectl, *words)

    patch = ("patch", "bitcoinnetwork", "my-network", "--type=merge", "--patch")
    async with webhooks_served(cluster):
        said = await refused("scale", "bitcoinnetwork", "my-network", "--replicas=0")
        assert ("spec.replicas: Invalid value: 0" in said, DELETE_IT in said) == (True, True)
        assert DELETE_IT in await refused(*patch, '{"spec": {"nodes": 0}}')
        assert "spec.secret: Invalid value" in await refused(*patch, '{"spec": {"secret": "other"}}')
        await done("scale", "bitcoinnetwork", "my-network", "--replicas=1")
        written = await done("get", "bitcoinnetwork", "my-network", "-o", "jsonpath={.spec.nodes} {.spec.secret}")
        assert written == "1 bitcoin-default-secret"
