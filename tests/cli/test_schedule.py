"""``kubeloop schedule explain``: the text for people, the tree for programs, and errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kubeloop.api.core.v1 import PersistentVolumeClaim
from kubeloop.controlplane.scheduling.configuration import default_profile
from kubeloop.controlplane.scheduling.explanation import explain_pod
from kubeloop.controlplane.scheduling.facts import SELECTED_NODE, PodFacts, claim_facts
from kubeloop.testing import LocalCluster
from tests.controlplane.scheduling import cluster, node, pod
from tests.controlplane.workloads import read

TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


def explained(pod: PodFacts) -> str:
    small = [node(f"small-{number}", room={"cpu": 500}) for number in range(10)]
    facts = cluster(node("a"), node("tainted", taints=[TAINT], room={"cpu": 500}), node("closed", closed=True), *small)
    if pod.node:
        facts.add_pod(pod, pod.node)
    return explain_pod(default_profile(), pod, facts).text(60)


def test_each_node_has_its_reasons_and_the_others_their_scores() -> None:
    assert explained(pod("web", cpu="1")).splitlines() == [
        "Pod shop/web has no node. Profile default-scheduler: 1 of 13",
        "nodes fit.",
        "",
        "Scores of the nodes that fit, the best first:",
        "  a  454",
        "    TaintToleration 300 + NodeResourcesFit 86 +",
        "    NodeResourcesBalancedAllocation 68",
        "",
        "10 nodes are refused. NodeResourcesFit: Insufficient cpu",
        "  small-0, small-1, small-2, small-3, small-4, small-5,",
        "  small-6, small-7, and 2 more",
        "",
        "1 node is refused. TaintToleration: node(s) had untolerated",
        "taint(s); NodeResourcesFit: Insufficient cpu",
        "  tainted",
        "",
        "1 node is refused. NodeUnschedulable: node(s) were",
        "unschedulable",
        "  closed",
    ]


def test_a_pod_with_a_node_counts_as_if_it_had_none() -> None:
    text = explained(pod("web", cpu="4", nodeName="a"))
    assert "Pod shop/web is on node a." in text
    assert "  a  399  (its node)" in text


def test_the_victims_of_a_possible_preemption_are_named() -> None:
    facts = cluster(node("a", pod("low", cpu="3")))
    explanation = explain_pod(default_profile(), pod("high", cpu="2", priority=10), facts)
    assert "On node a it can replace pods of lower priority: shop/low" in explanation.text()
    tree = json.loads(json.dumps(explanation.to_dict()))
    assert tree["preemption"] == {"node": "a", "victims": ["shop/low"]}
    assert tree["nodes"] == [
        {"name": "a", "fits": False, "refusals": [{"plugin": "NodeResourcesFit", "reasons": ["Insufficient cpu"], "resolvable": True}]}
    ]


def test_the_gates_of_a_pod_are_named_before_the_nodes() -> None:
    gated = pod("web", schedulingGates=[{"name": "a.example/quota"}, {"name": "b.example/queue"}])
    explanation = explain_pod(default_profile(), gated, cluster(node("a")))
    assert explanation.text(80).splitlines()[:5] == [
        "Scheduling is blocked due to non-empty scheduling gates: a.example/quota,",
        "b.example/queue. Without them:",
        "",
        "Pod shop/web has no node. Profile default-scheduler: 1 of 1 nodes fit.",
        "",
    ]
    assert explanation.to_dict()["schedulingGates"] == ["a.example/quota", "b.example/queue"]


def test_a_pod_that_waits_for_its_volumes_names_their_node() -> None:
    document = {"metadata": {"name": "data", "namespace": "shop", "annotations": {SELECTED_NODE: "a"}}, "spec": {"storageClassName": "csi"}}
    facts = cluster(node("a"), claims={("shop", "data"): claim_facts(read(PersistentVolumeClaim, document))})
    waiting = pod(
        "web",
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        status={"phase": "Pending", "nominatedNodeName": "a"},
    )
    explanation = explain_pod(default_profile(), waiting, facts)
    lines = explanation.text(80).splitlines()
    assert "The pod is nominated to node a (status.nominatedNodeName)." in lines
    assert "The pod waits for the volume of the claim data, whose selected node is a." in lines
    tree = explanation.to_dict()
    assert (tree["nominatedNode"], tree["selectedNodes"]) == ("a", [{"claim": "data", "node": "a"}])


@pytest.mark.embedded
def test_the_command_reads_the_cluster_and_names_a_pod_that_does_not_exist(tmp_path: Path) -> None:
    with LocalCluster(controllers=False) as running:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(Path(running.kubeconfig).read_text())
        command = [sys.executable, "-m", "kubeloop", "schedule", "explain", "web", "-n", "shop", "--kubeconfig", str(kubeconfig)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, 'Error: pods "web" not found in namespace "shop"\n')
