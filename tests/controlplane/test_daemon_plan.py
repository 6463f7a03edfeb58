"""The decisions of the DaemonSet controller: nodes that its pods run on, pods that come and go, steps of an update, and the status."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.api.apps.v1 import DaemonSet, DaemonSetStatus
from kubeloop.controlplane.scheduling.facts import NodeFacts
from kubeloop.controlplane.workloads.daemon_plan import (
    GENERATION_LABEL,
    DaemonPlacement,
    DaemonPlan,
    DaemonView,
    FailedPodBackoff,
    NodeDemand,
    daemon_template,
    make_status,
    plan_placement,
    plan_update,
    template_for_node,
    template_generation,
    tolerating_spec,
)
from kubeloop.controlplane.workloads.history import REVISION_LABEL
from kubeloop.controlplane.workloads.pod_snapshots import PodSnapshot
from kubeloop.meta import ObjectMeta
from tests.controlplane.workloads import read

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = ("uid", 1)
YES, STAYS, NO = NodeDemand(runs=True, continues=True), NodeDemand(runs=False, continues=True), NodeDemand(runs=False, continues=False)


def taint(key: str, effect: str) -> dict[str, str]:
    return {"key": key, "value": "", "effect": effect}


@pytest.mark.parametrize(
    ("spec", "labels", "taints", "expected"),
    [
        pytest.param({}, {}, [], YES, id="any node by default"),
        pytest.param({"nodeName": "other"}, {}, [], NO, id="not a node with another name than spec.nodeName"),
        pytest.param({"nodeName": "n"}, {}, [], YES, id="the node of spec.nodeName"),
        pytest.param({"nodeSelector": {"a": "b"}}, {"a": "c"}, [], NO, id="not a node without the labels of the node selector"),
        pytest.param({"nodeSelector": {"a": "b"}}, {"a": "b"}, [], YES, id="a node with them"),
        pytest.param({}, {}, [taint("x", "NoSchedule")], STAYS, id="a taint NoSchedule keeps new pods away"),
        pytest.param({}, {}, [taint("x", "NoExecute")], NO, id="a taint NoExecute ends them"),
        pytest.param({}, {}, [taint("x", "PreferNoSchedule")], YES, id="PreferNoSchedule does not count"),
        pytest.param({"tolerations": [{"operator": "Exists"}]}, {}, [taint("x", "NoExecute")], YES, id="a tolerated taint does not count"),
        pytest.param({}, {}, [taint("node.kubernetes.io/unschedulable", "NoSchedule")], YES, id="cordoned nodes are tolerated"),
        pytest.param({}, {}, [taint("node.kubernetes.io/not-ready", "NoExecute")], YES, id="so are nodes that are not ready"),
        pytest.param({}, {}, [taint("node.kubernetes.io/network-unavailable", "NoSchedule")], STAYS, id="but none without a network"),
        pytest.param(
            {"hostNetwork": True}, {}, [taint("node.kubernetes.io/network-unavailable", "NoSchedule")], YES, id="unless for the host's"
        ),
    ],
)
def test_placement(spec: dict[str, Any], labels: dict[str, str], taints: list[Any], expected: NodeDemand) -> None:
    assert DaemonPlacement(spec).judge(NodeFacts("n", labels, taints, False, {})) == expected


def test_required_node_affinity_decides_and_is_replaced_by_the_name_of_the_node() -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": "ssd", "operator": "Exists"}]}}]
    node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": terms, "preferredDuringSchedulingIgnoredDuringExecution": preferred}
    spec = {"affinity": {"nodeAffinity": node_affinity, "podAntiAffinity": {}}}
    placement = DaemonPlacement(spec)
    assert placement.judge(NodeFacts("n", {"zone": "a"}, [], False, {})) == YES
    assert placement.judge(NodeFacts("n", {"zone": "b"}, [], False, {})) == NO
    changed = template_for_node({"spec": spec}, "n")["spec"]["affinity"]
    assert changed["podAntiAffinity"] == {}
    assert changed["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    assert changed["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
    }
    assert spec["affinity"]["nodeAffinity"] == node_affinity, "the template itself stays"


def test_a_toleration_for_some_time_becomes_unlimited() -> None:
    some_time = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    own = {"key": "x", "operator": "Exists"}
    found = tolerating_spec({"tolerations": [own, some_time]})["tolerations"]
    assert found[:2] == [own, {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]
    assert len(found) == 7


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [("3", {GENERATION_LABEL: "3"}), ("", {}), ("many", {})],
    ids=["the annotation's number is a label", "no annotation, no label", "an annotation that is not a number is left out"],
)
def test_pods_are_labelled_with_their_version(annotation: str, expected: dict[str, str]) -> None:
    owner = DaemonSet(metadata=ObjectMeta(annotations={"deprecated.daemonset.template.generation": annotation} if annotation else {}))
    made = daemon_template({"metadata": {"labels": {"app": "a"}}, "spec": {}}, template_generation(owner), "hash")
    assert made["metadata"]["labels"] == {"app": "a", **expected, REVISION_LABEL: "hash"}


# ------------------------------------------------------------------------------------------------------------------------- plans


def pods(text: str) -> list[PodSnapshot]:
    """A word for each node (a, b, c ...) with a letter for each of its pods, oldest first: R ready and new, r ready and old, N and n not
    ready, f failed, s succeeded, t terminating, w new without a node yet, - none.
    """
    found = []
    for node, states in zip("abcdefgh", text.split(), strict=False):
        for number, state in enumerate(states.replace("-", "")):
            phase = {"f": "Failed", "s": "Succeeded"}.get(state, "Running")
            labels = {REVISION_LABEL: "new" if state in "RNw" else "old"}
            ready = state in "Rr"
            place = "" if state == "w" else node
            name = f"{node}{number}"
            found.append(
                PodSnapshot(name, name, labels, phase, state == "t", NOW, place, node, ready, NOW if ready else None, {}),
            )
    return found


def view(text: str, demands: str | None = None, least: int = 0, **strategy: Any) -> DaemonView:
    """``demands`` has a letter for each node: y runs a pod, s lets one stay, n neither. Default: all y."""
    letters = demands if demands is not None else "y" * len(text.split())
    wanted = {node: {"y": YES, "s": STAYS, "n": NO}[letter] for node, letter in zip("abcdefgh", letters, strict=False)}
    update = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1} | strategy}
    owner = read(
        DaemonSet,
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {}, "spec": {"updateStrategy": update, "minReadySeconds": least}},
    )
    return DaemonView.from_objects(owner, wanted, pods(text), "new", NOW)


def shown(plan: DaemonPlan) -> str:
    return " ".join([*(f"+{node}" for node in plan.create), *(f"-{pod.name}" for pod in plan.delete)])


SURGE: dict[str, Any] = {"maxSurge": 1, "maxUnavailable": 0}


@pytest.mark.parametrize(
    ("text", "demands", "strategy", "expected"),
    [
        pytest.param("- R -", None, {}, "+a +c", id="nodes without a pod get one"),
        pytest.param("R t", None, {}, "", id="a terminating pod is waited for"),
        pytest.param("R t", None, SURGE, "+b", id="not with surge"),
        pytest.param("- R", "ns", {}, "", id="no pod comes to a node that does not fit"),
        pytest.param("R R", "sn", {}, "-b0", id="a pod leaves a node whose taint evicts it, not a node that only keeps new pods away"),
        pytest.param("Rrr R", None, {}, "-a1 -a2", id="the oldest pod of a node stays"),
        pytest.param("wR R", None, {}, "-a0", id="a pod that has its node stays before a waiting pod"),
        pytest.param("f s", None, {}, "-a0 -b0", id="ended pods go"),
        pytest.param("R wR", "y", {}, "-b0", id="a pod that waits for a missing node goes"),
        pytest.param("rN", None, SURGE, "", id="with surge the old pod stays while the new one is not available"),
        pytest.param("rR", None, SURGE, "-a0", id="and goes then"),
        pytest.param("nN", None, SURGE, "-a0", id="or when it is not ready itself"),
        pytest.param("rrNN", None, SURGE, "-a1 -a3", id="one old and one new pod are enough"),
    ],
)
def test_placement_plan(text: str, demands: str | None, strategy: dict[str, Any], expected: str) -> None:
    found = plan_placement(view(text, demands, **strategy), FailedPodBackoff(), OWNER, 0.0)
    assert shown(found) == expected


@pytest.mark.parametrize(
    ("text", "strategy", "expected"),
    [
        pytest.param("r r r", {}, "-a0", id="one pod at a time is replaced"),
        pytest.param("N r r", {}, "", id="not while another is unavailable"),
        pytest.param("t r r", {}, "", id="nor while a node has none"),
        pytest.param("R r r", {}, "-b0", id="the next when the new one is available"),
        pytest.param("r r r r", {"maxUnavailable": "50%"}, "-a0 -b0", id="a percentage of the nodes"),
        pytest.param("r r r", {"maxUnavailable": "34%"}, "-a0 -b0", id="rounded up"),
        pytest.param("n n r", {}, "-a0 -b0", id="old pods that are not available go whatever the limit"),
        pytest.param("rr r", {}, "", id="a node with too many pods is left to the placement and counts"),
        pytest.param("R R", {}, "", id="nothing is to do when all are new"),
        pytest.param("r r", {"maxUnavailable": 0}, "-a0", id="without any room one pod may be unavailable"),
        pytest.param("r r r", SURGE, "+a", id="a surge creates a new pod beside an old one"),
        pytest.param("rN r r", SURGE, "", id="not more than allowed"),
        pytest.param("rR r r", SURGE, "+b -a0", id="an old pod goes when the new one is available, and the next node begins"),
        pytest.param("n n r", SURGE, "+a +b +c", id="old pods that are not available get a new one whatever the limit"),
        pytest.param("r r r r", {"maxSurge": "50%", "maxUnavailable": 0}, "+a +b", id="a percentage of surging nodes"),
    ],
)
def test_update_plan(text: str, strategy: dict[str, Any], expected: str) -> None:
    assert shown(plan_update(view(text, **strategy))) == expected


@pytest.mark.parametrize(
    ("text", "demands", "expected"),
    [
        pytest.param("r -", "sy", "", id="a pod on a wrong node stays while no other is available"),
        pytest.param("r R", "sy", "-a0", id="and goes when enough are"),
        pytest.param("n R", "sy", "-a0", id="a pod that is not available goes at once"),
    ],
)
def test_a_surge_leaves_wrong_nodes_without_losing_pods(text: str, demands: str, expected: str) -> None:
    assert shown(plan_update(view(text, demands, **SURGE))) == expected


def test_a_new_pod_counts_only_after_min_ready_seconds() -> None:
    assert shown(plan_update(view("R r", least=10))) == "-b0", "the old one is not available for long enough either"
    assert shown(plan_update(view("rR", least=10, **SURGE))) == ""


def test_failed_pods_are_deleted_with_growing_delays() -> None:
    backoff, found = FailedPodBackoff(), view("f")
    results = [(shown(plan_placement(found, backoff, OWNER, now)), now) for now in (0.0, 0.5, 1.0, 2.0, 3.0, 6.9, 7.0)]
    assert results == [("-a0", 0.0), ("", 0.5), ("-a0", 1.0), ("", 2.0), ("-a0", 3.0), ("", 6.9), ("-a0", 7.0)]
    assert plan_placement(found, backoff, OWNER, 7.5).retry_after == 8.0
    assert shown(plan_placement(found, backoff, ("uid", 2), 7.5)) == "-a0", "another generation begins again"
    assert shown(plan_placement(found, backoff, OWNER, 5000.0)) == "-a0"
    assert backoff.seconds_left((*OWNER, "a"), 5000.0) == 1.0, "a long time without failures begins again"


@pytest.mark.parametrize(
    ("text", "demands", "expected"),
    [
        pytest.param("R r N -", None, (4, 3, 2, 2, 2, 2, 0), id="pods of both templates, ready or not, and a missing one"),
        pytest.param("R R", "sn", (0, 0, 0, 0, 0, 0, 2), id="pods on wrong nodes are misscheduled"),
        pytest.param("rR", None, (1, 1, 1, 0, 1, 0, 0), id="of two pods the older one counts"),
        pytest.param("t", None, (1, 1, 0, 0, 0, 1, 0), id="a terminating pod is still scheduled"),
    ],
)
def test_status(text: str, demands: str | None, expected: tuple[int, ...]) -> None:
    found = make_status(view(text, demands), DaemonSetStatus(collision_count=2, observed_generation=3), 4)
    scheduled = (found.desired_number_scheduled, found.current_number_scheduled, found.number_ready)
    rest = (found.updated_number_scheduled, found.number_available, found.number_unavailable)
    assert (*scheduled, *(number or 0 for number in rest), found.number_misscheduled) == expected
    assert (found.collision_count, found.observed_generation) == (2, 4)
    assert make_status(view(text, demands), found, None).observed_generation == 4
