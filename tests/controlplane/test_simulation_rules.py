"""Simulation files, the nodes that they describe, and the numbers and names of ``--nodes``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kubeloop.controlplane.simulation.annotations import PREFIX
from kubeloop.controlplane.simulation.node_templates import NodeTemplate, address_of, conditions, node_names, renewal_plan
from kubeloop.controlplane.simulation.rules import SimulationRules
from kubeloop.meta import ConfigError
from kubeloop.types import JSONObject

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FILE = """
seed: 7
nodes:
- name: small
  count: 2
  labels: {topology.kubernetes.io/zone: a, node.kubernetes.io/instance-type: s}
  capacity: {cpu: 2, memory: 4Gi}
  taints: [{key: gpu, effect: NoSchedule}]
  usage: {cpu: 100m}
- name: flaky
  failures: [{after: 60, seconds: 30}]
pods:
- namespaces: [shop]
  labels: app=web
  simulate: {readiness-probe: failure 30 success, exit-code: {main: [1, 1, 0], helper: 0}}
- annotations: {team: a}
  nodes: [small-0]
  simulate: {exit-code: 9, run-seconds: 5}
- programs: ["*/tool:* [a-z]un --fast"]
  simulate: {exit-code: 4}
"""


@pytest.fixture
def rules(tmp_path: Path) -> SimulationRules:
    path = tmp_path / "simulation.yaml"
    path.write_text(FILE)
    return SimulationRules.read(path)


def pod(node: str = "", annotations: dict[str, str] | None = None, **labels: str) -> JSONObject:
    metadata = {"name": "p", "namespace": "shop", "labels": labels, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"nodeName": node, "restartPolicy": "Never"}}


def programs(*texts: str, kind: str = "containers") -> JSONObject:
    names = ["main", "helper"]
    containers = [
        {"name": name, "image": text.split()[0], "command": text.split()[1:2], "args": text.split()[2:]}
        for name, text in zip(names, texts, strict=False)
    ]
    tree = pod()
    return {**tree, "spec": {**tree["spec"], kind: containers}}


def test_a_file_describes_nodes(rules: SimulationRules) -> None:
    assert [one.name for one in rules.nodes or ()] == ["small-0", "small-1", "flaky"]
    node = (rules.nodes or ())[0].node("10.0.0.10", NOW)
    assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "a"
    assert node["metadata"]["labels"]["beta.kubernetes.io/os"] == "linux"
    assert node["spec"]["taints"] == [{"key": "gpu", "effect": "NoSchedule"}]
    assert node["status"]["allocatable"] == {"cpu": "2", "memory": "4Gi", "pods": "10000", "ephemeral-storage": "1Ti"}
    assert [(rules.nodes or ())[2].fails(second) for second in (0, 59, 60, 89, 90)] == [False, False, True, True, False]


@pytest.mark.parametrize(
    ("document", "codes", "seconds"),
    [
        pytest.param(pod(app="web"), [1, 1, 0, 0], 1.0, id="a rule by labels and namespace, with a code for each run"),
        pytest.param(pod("small-0", {"team": "a"}), [9, 9, 9, 9], 5.0, id="a rule by annotations and node"),
        pytest.param(pod("small-0", {"team": "a"}, app="web"), [1, 1, 0, 0], 5.0, id="the first rule counts, for each annotation"),
        pytest.param(pod("small-1", {"team": "a"}), [0, 0, 0, 0], 1.0, id="no rule matches"),
        pytest.param(programs("a/tool:1 run --fast"), [4, 4, 4, 4], 1.0, id="a rule by image, command and arguments"),
        pytest.param(programs("x:1", "a/tool:1 run --fast"), [0, 0, 0, 0], 1.0, id="another container's program"),
        pytest.param(programs("a/tool:1 run --fast", kind="initContainers"), [4, 4, 4, 4], 1.0, id="an init container's program"),
        pytest.param(programs("a/tool:1 run --fast --far"), [0, 0, 0, 0], 1.0, id="a pattern matches the whole program"),
        pytest.param(pod(annotations={f"{PREFIX}exit-code": "3"}, app="web"), [3, 3, 3, 3], 1.0, id="the pod's own annotation comes first"),
    ],
)
def test_rules_select_pods(rules: SimulationRules, document: JSONObject, codes: list[int], seconds: float) -> None:
    simulation = rules.simulation_of(document)
    assert [simulation.exit_code("main", run) for run in range(4)] == codes
    assert simulation.run_seconds("main") == seconds


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        pytest.param({"node": []}, "the file: node is not known; seed, nodes, pods are", id="an unknown field"),
        pytest.param({"nodes": {}}, "the file.nodes: {} is not a list", id="a map instead of a list"),
        pytest.param({"nodes": [{"count": "3"}]}, "nodes[0].count: '3' is not a whole number", id="a text instead of a number"),
        pytest.param({"nodes": [{"name": "A B"}]}, '"A B" is not a valid name of a Node', id="a name that no node can have"),
        pytest.param({"nodes": [{"name": "a"}, {"name": "a"}]}, "two nodes have the same name", id="a name twice"),
        pytest.param({"nodes": [{"capacity": {"cpu": "much"}}]}, 'nodes[0].capacity.cpu: "much" is not a valid quantity', id="no quantity"),
        pytest.param({"nodes": [{"usage": {"cpu": "x"}}]}, 'nodes[0].usage.cpu: "x" is not an amount', id="no usage"),
        pytest.param({"pods": [{"labels": "a in"}]}, "pods[0].labels: ", id="no selector"),
        pytest.param({"pods": [{"simulate": {"exit-code": 300}}]}, 'exit-code: "300" is neither', id="no exit code"),
        pytest.param({"pods": [{"programs": ["a"], "simulate": {"jitter": 1}}]}, "jitter: a rule with programs", id="no container's"),
        pytest.param({"pods": [{"simulate": {"exits": 3}}]}, "exits is not known", id="no such behaviour"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_the_place(tree: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SimulationRules.from_tree(tree)
    assert message in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"simulation file .*none.yaml: No such file"):
        SimulationRules.read(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("0", ()),
        ("1", ("kubeloop-node",)),
        ("3", ("kubeloop-node-0", "kubeloop-node-1", "kubeloop-node-2")),
        ("a, b", ("a", "b")),
    ],
)
def test_node_names(text: str, names: tuple[str, ...]) -> None:
    assert node_names(text) == names


@pytest.mark.parametrize("text", ["-1", "A", "a,a", "a,", "99999"])
def test_names_of_no_nodes_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        node_names(text)


def test_addresses_of_thousands_of_nodes_differ() -> None:
    assert len({address_of(number) for number in range(5000)}) == 5000
    assert address_of(0) == "10.0.0.10"


@pytest.mark.parametrize("nodes", [1, 100, 101, 1000, 5000])
def test_each_lease_is_renewed_twice_within_the_grace_period(nodes: int) -> None:
    seconds, count = renewal_plan(nodes)
    assert 2 * seconds * -(-nodes // count) <= 50


def test_a_batch_that_comes_late_is_larger() -> None:
    assert [renewal_plan(1000, elapsed)[1] for elapsed in (0.5, 1.0, 12.0, 60.0)] == [42, 42, 500, 1000]


def test_conditions_that_do_not_change_retain_their_transition() -> None:
    before = [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"},
        {"type": "PIDPressure", "status": "Unknown"},
    ]
    after = {one["type"]: one["lastTransitionTime"] for one in conditions(NOW, before)}
    assert after == {
        "Ready": "2025-01-01T00:00:00Z",
        "PIDPressure": "2026-01-01T00:00:00Z",
        "MemoryPressure": "2026-01-01T00:00:00Z",
        "DiskPressure": "2026-01-01T00:00:00Z",
    }
    assert NodeTemplate("n").node("10.0.0.10", NOW)["status"]["conditions"][-1]["reason"] == "KubeletReady"
