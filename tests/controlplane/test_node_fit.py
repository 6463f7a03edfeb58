"""Fit of pods and nodes: which nodes can take a pod, and upstream's words for why none can."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.controlplane.node_fit import judge
from kubeloop.controlplane.scheduling_facts import ClaimFacts, ClusterFacts, JSONObject, NodeFacts, PodFacts

NONE = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
NO_VICTIMS = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
HOSTNAME = "kubernetes.io/hostname"
ROOM = {"cpu": 4000, "memory": 8 << 30, "pods": 3}
APP = {"matchLabels": {"app": "web"}}


def pod(name: str = "p", *, node: str = "", labels: dict[str, str] | None = None, cpu: str = "", **spec: Any) -> PodFacts:
    container: JSONObject = {"name": "c", "image": "x"}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    document = {
        "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": labels or {}},
        "spec": {"containers": [container], "nodeName": node} | spec,
    }
    return PodFacts(document)


def node(name: str = "n", *pods: PodFacts, taints: list[JSONObject] | None = None, closed: bool = False, **labels: str) -> NodeFacts:
    made = NodeFacts(name, {HOSTNAME: name} | labels, taints or [], closed, ROOM)
    made.pods = list(pods)
    return made


def required(*expressions: JSONObject, fields: list[JSONObject] | None = None) -> JSONObject:
    term: JSONObject = {"matchExpressions": list(expressions)}
    if fields:
        term["matchFields"] = fields
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def near(kind: str, key: str = HOSTNAME, **term: Any) -> JSONObject:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": APP} | term]}}


def port(number: int, address: str = "") -> JSONObject:
    return {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": number, "protocol": "TCP", "hostIP": address}]}]}


def spread(**fields: Any) -> JSONObject:
    constraint = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": APP} | fields
    return {"topologySpreadConstraints": [constraint]}


def volumes(**volume: Any) -> JSONObject:
    return {"volumes": [{"name": "data"} | volume]}


WEB = {"app": "web"}
OTHER_NAMESPACE = pod("other", node="n", labels=WEB)
OTHER_NAMESPACE.namespace = "other"
LOW = pod("low", node="n", cpu="3", priority=-1)
CLAIM = {"persistentVolumeClaim": {"claimName": "data"}}


@pytest.mark.parametrize(
    ("wanted", "nodes", "expected"),
    [
        pytest.param(pod(), [], "no nodes available to schedule pods", id="without nodes"),
        pytest.param(pod(), [node()], "", id="a node without anything special takes a pod"),
        pytest.param(pod(), [node(closed=True)], f"1 node(s) were unschedulable. {NONE}", id="a cordoned node"),
        pytest.param(
            pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
            [node(closed=True)],
            "",
            id="a cordoned node takes a pod that tolerates it",
        ),
        pytest.param(
            pod(),
            [node(taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])],
            f"1 node(s) had untolerated taint(s). {NONE}",
            id="an untolerated taint",
        ),
        pytest.param(
            pod(),
            [node(taints=[{"key": "team", "value": "a", "effect": "PreferNoSchedule"}])],
            "",
            id="a taint that only asks is no reason",
        ),
        pytest.param(
            pod(tolerations=[{"key": "team", "value": "b"}]),
            [node(taints=[{"key": "team", "value": "a", "effect": "NoExecute"}])],
            f"1 node(s) had untolerated taint(s). {NONE}",
            id="a toleration of another value",
        ),
        pytest.param(
            pod(nodeSelector={"disk": "ssd"}),
            [node()],
            f"1 node(s) didn't match Pod's node affinity/selector. {NONE}",
            id="a node selector",
        ),
        pytest.param(pod(nodeSelector={"disk": "ssd"}), [node(disk="ssd")], "", id="a node selector that matches"),
        pytest.param(
            pod(affinity=required({"key": "disk", "operator": "In", "values": ["ssd"]})),
            [node(disk="hdd")],
            f"1 node(s) didn't match Pod's node affinity/selector. {NONE}",
            id="node affinity",
        ),
        pytest.param(
            pod(affinity=required({"key": "cores", "operator": "Gt", "values": ["7"]})), [node(cores="8")], "", id="node affinity by number"
        ),
        pytest.param(
            pod(affinity=required({"key": "disk", "operator": "NotIn", "values": ["hdd"]})),
            [node()],
            "",
            id="NotIn matches a missing label",
        ),
        pytest.param(
            pod(affinity=required(fields=[{"key": "metadata.name", "operator": "In", "values": ["other"]}])),
            [node()],
            f"1 node(s) didn't satisfy plugin(s) [NodeAffinity]. {NONE}",
            id="affinity to another node by name",
        ),
        pytest.param(pod(cpu="5"), [node()], f"1 Insufficient cpu. {NONE}", id="more cpu than the node has"),
        pytest.param(
            pod(cpu="3"), [node("n", pod("q", node="n", cpu="2"))], f"1 Insufficient cpu. {NO_VICTIMS}", id="more cpu than is left"
        ),
        pytest.param(
            pod(cpu="3"),
            [node("n", LOW)],
            "1 Insufficient cpu. preemption: kubeloop's scheduler does not preempt pods.",
            id="pods of lower priority are not preempted, and the message says so",
        ),
        pytest.param(
            pod(cpu="3", preemptionPolicy="Never"),
            [node("n", LOW)],
            "1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.",
            id="a pod that never preempts",
        ),
        pytest.param(
            pod(cpu="9"),
            [node("a"), node("b", closed=True)],
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. "
            "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
            id="each node has its reason",
        ),
        pytest.param(
            pod(),
            [node("n", *(pod(name, node="n") for name in "abc"))],
            f"1 Too many pods. {NO_VICTIMS}",
            id="as many pods as a node takes",
        ),
        pytest.param(
            pod(
                resources={"requests": {"example.com/gpu": "1"}},
                containers=[{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}],
            ),
            [node()],
            f"1 Insufficient example.com/gpu. {NONE}",
            id="an extended resource that no node has",
        ),
        pytest.param(
            pod(**port(8080)),
            [node("n", pod("q", node="n", **port(8080)))],
            f"1 node(s) didn't have free ports for the requested pod ports. {NO_VICTIMS}",
            id="a host port in use",
        ),
        pytest.param(
            pod(**port(8080, "10.0.0.1")),
            [node("n", pod("q", node="n", **port(8080, "10.0.0.2")))],
            "",
            id="the same port of another address",
        ),
        pytest.param(
            pod(affinity=near("podAffinity")),
            [node()],
            f"1 node(s) didn't match pod affinity rules. {NONE}",
            id="affinity to a pod that is not there",
        ),
        pytest.param(pod(affinity=near("podAffinity"), labels=WEB), [node()], "", id="the first pod of a group that is near itself"),
        pytest.param(
            pod(affinity=near("podAffinity")),
            [node("n", OTHER_NAMESPACE)],
            f"1 node(s) didn't match pod affinity rules. {NONE}",
            id="affinity means pods of the same namespace",
        ),
        pytest.param(
            pod(affinity=near("podAffinity", namespaceSelector={})), [node("n", OTHER_NAMESPACE)], "", id="unless it selects all namespaces"
        ),
        pytest.param(
            pod(affinity=near("podAntiAffinity"), labels=WEB),
            [node("n", pod("q", node="n", labels=WEB))],
            f"1 node(s) didn't match pod anti-affinity rules. {NO_VICTIMS}",
            id="anti-affinity to a pod on the node",
        ),
        pytest.param(
            pod(labels=WEB),
            [node("n", pod("q", node="n", affinity=near("podAntiAffinity")))],
            f"1 node(s) didn't satisfy existing pods anti-affinity rules. {NO_VICTIMS}",
            id="anti-affinity of a pod on the node",
        ),
        pytest.param(
            pod(labels=WEB, **spread(topologyKey="zone")),
            [node()],
            f"1 node(s) didn't match pod topology spread constraints (missing required label). {NONE}",
            id="spread over a label that is missing",
        ),
        pytest.param(
            pod(labels=WEB, **spread(minDomains=2)),
            [node("n", pod("q", node="n", labels=WEB))],
            f"1 node(s) didn't match pod topology spread constraints. {NO_VICTIMS}",
            id="spread over more domains than there are",
        ),
        pytest.param(
            pod(labels=WEB, **spread(whenUnsatisfiable="ScheduleAnyway", topologyKey="zone")), [node()], "", id="spread that need not hold"
        ),
        pytest.param(pod(**volumes(**CLAIM)), [node()], f'persistentvolumeclaim "data" not found. {NONE}', id="a missing claim"),
        pytest.param(
            pod(**volumes(ephemeral={})),
            [node()],
            f'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-data". {NONE}',
            id="an ephemeral volume without its claim",
        ),
        pytest.param(
            pod(resourceClaims=[{"name": "gpu"}]),
            [node()],
            f"kubeloop's scheduler does not allocate resource claims. {NONE}",
            id="resource claims",
        ),
    ],
)
def test_judge(wanted: PodFacts, nodes: list[NodeFacts], expected: str) -> None:
    verdict = judge(wanted, ClusterFacts(nodes))
    if expected and not expected.startswith(("0/", "no nodes")):
        expected = f"0/1 nodes are available: {expected}"
    assert verdict.message == expected
    assert bool(verdict.fitting) is not bool(expected)


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        pytest.param(ClaimFacts(deleting=False, lost_volume=None, owner=""), "", id="a claim that is there"),
        pytest.param(
            ClaimFacts(deleting=True, lost_volume=None, owner=""), 'persistentvolumeclaim "data" is being deleted', id="one being deleted"
        ),
        pytest.param(
            ClaimFacts(deleting=False, lost_volume="v", owner=""),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"',
            id="a claim whose volume is lost",
        ),
    ],
)
def test_claims(claim: ClaimFacts, expected: str) -> None:
    verdict = judge(pod(**volumes(**CLAIM)), ClusterFacts([node()], claims={("shop", "data"): claim}))
    assert verdict.message == (f"0/1 nodes are available: {expected}. {NONE}" if expected else "")


def test_pods_are_spread_to_the_domain_with_the_fewest() -> None:
    nodes = [node("a", pod("q", node="a", labels=WEB)), node("b")]
    assert [one.name for one in judge(pod(labels=WEB, **spread()), ClusterFacts(nodes)).fitting] == ["b"]
