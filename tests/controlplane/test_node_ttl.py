"""The TTL of cached Secrets that nodes get, by the size of the cluster."""

from __future__ import annotations

import pytest

from kubeloop.api.core.v1 import Node
from kubeloop.controlplane.nodes import node_lifecycle
from kubeloop.controlplane.nodes.node_lifecycle import TTL, NodeTTLController, next_step
from kubeloop.meta import ObjectMeta
from tests.controlplane.kills import KillScenario, assert_survives_kills
from tests.controlplane.simulated import FakeTimeCluster, simulation


@pytest.mark.parametrize(
    ("step", "nodes", "expected"),
    [
        pytest.param(0, 100, 0, id="up to 100 nodes the first step"),
        pytest.param(0, 101, 1, id="more are the second"),
        pytest.param(1, 90, 1, id="a few less change nothing"),
        pytest.param(1, 89, 0, id="less than 90 are the first step again"),
        pytest.param(0, 5000, 4, id="many nodes skip steps"),
        pytest.param(4, 5, 0, id="so do few"),
    ],
)
def test_next_step(step: int, nodes: int, expected: int) -> None:
    assert next_step(step, nodes) == expected


async def add_nodes(cluster: FakeTimeCluster) -> None:
    await cluster.client.create(Node(metadata=ObjectMeta(name="a")))
    await cluster.client.create(Node(metadata=ObjectMeta(name="b", annotations={TTL: "many"})))
    await cluster.client.create(Node(metadata=ObjectMeta(name="c", annotations={TTL: "15"})))
    await cluster.pass_time(2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("015", "15", id="a number with zeros"),
        pytest.param("1_5", None, id="no number in Go: an underscore"),
        pytest.param(" 15", None, id="no number in Go: a space"),
        pytest.param("\u0661\u0665", None, id="no number in Go: other digits"),
        pytest.param(None, None, id="no annotation"),
    ],
)
def test_an_annotation_is_read_as_go_reads_it(text: str | None, expected: str | None) -> None:
    assert node_lifecycle._number(text) == expected


async def ttls(cluster: FakeTimeCluster) -> dict[str, str | None]:
    return {node.metadata.name: node.metadata.annotations.get(TTL) for node in await cluster.client.list(Node)}


async def test_every_node_has_the_ttl_of_the_size_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    async with simulation(NodeTTLController()) as cluster:
        await add_nodes(cluster)
        assert await ttls(cluster) == {"a": "0", "b": "0", "c": "0"}
        monkeypatch.setattr(node_lifecycle, "_STEPS", ((0, 3, 0), (3, None, 15)))
        await cluster.client.create(Node(metadata=ObjectMeta(name="d")))
        await cluster.pass_time(2)
        assert await ttls(cluster) == dict.fromkeys("abcd", "15")


async def test_survives_a_kill_after_any_write() -> None:
    assert await assert_survives_kills(KillScenario(lambda: [NodeTTLController()], add_nodes, [Node]))
