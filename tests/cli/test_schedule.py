"""``kubeloop schedule explain``: the text for people, the tree for programs, and errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kubeloop.controlplane.scheduling.configuration import default_profile
from kubeloop.controlplane.scheduling.explanation import explain_pod
from kubeloop.controlplane.scheduling.facts import PodFacts
from kubeloop.testing import LocalCluster
from tests.controlplane.scheduling import cluster, node, pod

TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


def explained(wanted: PodFacts) -> str:
    small = [node(f"small-{number}", room={"cpu": 500}) for number in range(10)]
    facts = cluster(node("a"), node("tainted", taints=[TAINT], room={"cpu": 500}), node("closed", closed=True), *small)
    if wanted.node:
        facts.add_pod(wanted, wanted.node)
    return explain_pod(default_profile(), wanted, facts).text(60)


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


@pytest.mark.embedded
def test_the_command_reads_the_cluster_and_names_a_pod_that_does_not_exist(tmp_path: Path) -> None:
    with LocalCluster(controllers=False) as running:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(Path(running.kubeconfig).read_text())
        command = [sys.executable, "-m", "kubeloop", "schedule", "explain", "web", "-n", "shop", "--kubeconfig", str(kubeconfig)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (1, 'Error: pods "web" not found in namespace "shop"\n')
