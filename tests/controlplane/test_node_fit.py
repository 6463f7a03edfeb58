"""Fit of pods and nodes: which nodes can take a pod, and upstream's words for why none can."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.api.core.v1 import Node, NodeStatus, PersistentVolume, PersistentVolumeClaim
from kubeloop.controlplane.scheduling.cluster_facts import ClusterFacts
from kubeloop.controlplane.scheduling.facts import (
    BIND_COMPLETED,
    SELECTED_NODE,
    ClassFacts,
    NodeFacts,
    PodFacts,
    claim_facts,
    node_facts,
    volume_facts,
)
from kubeloop.controlplane.scheduling.node_fit import judge
from kubeloop.meta import ObjectMeta, Quantity
from kubeloop.types import JSONObject
from tests.controlplane.workloads import read

NONE = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
#: The pod was refused whatever the node, so that upstream's plugin for resource claims has no state of it.
NO_STATE = "not found"
NO_VICTIMS = "no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
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
    ("pending", "nodes", "expected"),
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
        *(
            pytest.param(
                pod(affinity=required({"key": "cores", "operator": "Gt", "values": [bound]})),
                [node(cores=label)],
                f"1 node(s) didn't match Pod's node affinity/selector. {NONE}",
                id=f"no number in Go: label {label!r}, value {bound!r}",
            )
            for label, bound in (
                ("1_0", "7"),
                (" 8", "7"),
                ("\u0668", "7"),
                ("8", "+ 7"),
                ("9223372036854775808", "7"),
                ("8", "1_0"),
                ("", "-1"),
            )
        ),
        pytest.param(
            pod(affinity=required({"key": "cores", "operator": "Lt", "values": ["+9"]})), [node(cores="-08")], "", id="signs and zeros"
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
            "1 Insufficient cpu.",
            id="a pod of lower priority makes room",
        ),
        pytest.param(
            pod(cpu="3", preemptionPolicy="Never"),
            [node("n", LOW)],
            "1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to preemptionPolicy=Never.",
            id="a pod that never preempts",
        ),
        pytest.param(
            pod(cpu="9"),
            [node("a"), node("b", closed=True)],
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. "
            "no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
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
        pytest.param(pod(**volumes(**CLAIM)), [node()], f'persistentvolumeclaim "data" not found. {NO_STATE}', id="a missing claim"),
        pytest.param(
            pod(**volumes(ephemeral={})),
            [node()],
            f'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-data". {NO_STATE}',
            id="an ephemeral volume without its claim",
        ),
        pytest.param(
            pod(resourceClaims=[{"name": "gpu"}]),
            [node()],
            "kubeloop's scheduler does not allocate resource claims.",
            id="resource claims",
        ),
    ],
)
def test_judge(pending: PodFacts, nodes: list[NodeFacts], expected: str) -> None:
    end_condition = judge(pending, ClusterFacts(nodes))
    if expected and not expected.startswith(("0/", "no nodes")):
        expected = f"0/1 nodes are available: {expected}"
    assert end_condition.message == expected
    assert bool(end_condition.fitting) is not bool(expected)


def claim(*, volume: str = "", phase: str = "Pending", storage_class: str = "", deleting: bool = False, **annotations: str) -> JSONObject:
    """Return a claim, bound to the volume if it names one."""
    known = {"bound": BIND_COMPLETED, "selected": SELECTED_NODE}
    metadata: JSONObject = {"name": "data", "namespace": "shop", "uid": "data-uid"}
    metadata["annotations"] = {known[key]: value for key, value in annotations.items()} | ({BIND_COMPLETED: "yes"} if volume else {})
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    return {
        "metadata": metadata,
        "spec": spec | {"volumeName": volume, "storageClassName": storage_class},
        "status": {"phase": "Bound" if volume and phase == "Pending" else phase},
    }


def volume(size: str = "2Gi", zone: str = "", node: str = "", phase: str = "Available", **spec: Any) -> JSONObject:
    """Return a volume of the class "local"; with ``node`` only that node can use it."""
    if node:
        terms = [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    chosen = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local"} | spec
    labels = {"topology.kubernetes.io/zone": zone} if zone else {}
    return {"metadata": {"name": "v", "uid": "v", "labels": labels}, "spec": chosen, "status": {"phase": phase}}


UNBOUND = "pod has unbound immediate PersistentVolumeClaims"
OTHER_NODE = "1 node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "1 node(s) didn't find available persistent volumes to bind"
DELAYED = ClassFacts(delayed=True, provisioner="kubernetes.io/no-provisioner", topologies=[])
IN_ZONE_A = [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]


@pytest.mark.parametrize(
    ("claim_tree", "offered", "device_class", "expected"),
    [
        pytest.param(claim(volume="v"), volume(), None, "", id="a bound claim"),
        pytest.param(claim(), None, None, UNBOUND, id="a claim without a volume"),
        pytest.param(claim(storage_class="local"), volume(), None, UNBOUND, id="a claim is unbound although a volume would suit it"),
        pytest.param(
            claim(volume="v", phase="Lost"),
            None,
            None,
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"',
            id="a claim whose volume is lost",
        ),
        pytest.param(
            claim(volume="v", deleting=True),
            volume(),
            None,
            'persistentvolumeclaim "data" is being deleted',
            id="a claim that is being deleted",
        ),
        pytest.param(
            claim(volume="v"), None, None, 'persistentvolume "v" not found', id="a claim is bound to a volume that does not exist"
        ),
        pytest.param(claim(volume="v"), volume(node="n"), None, "", id="the volume of a bound claim is on this node"),
        pytest.param(claim(volume="v"), volume(node="m"), None, OTHER_NODE, id="the volume of a bound claim is on another node"),
        pytest.param(claim(volume="v"), volume(zone="a__b"), None, "", id="the node is in a zone of the volume"),
        pytest.param(
            claim(volume="v"), volume(zone="b"), None, "1 node(s) had no available volume zone", id="the volume is in another zone"
        ),
        pytest.param(claim(storage_class="local"), volume(), DELAYED, "", id="a volume suits a claim that waits for a pod"),
        pytest.param(
            claim(storage_class="local"), volume(node="n"), DELAYED, "", id="a volume on this node suits a claim that waits for a pod"
        ),
        pytest.param(claim(storage_class="local"), volume(node="m"), DELAYED, NO_VOLUME, id="the only volume is on another node"),
        pytest.param(claim(storage_class="local"), volume("1Gi"), DELAYED, NO_VOLUME, id="the only volume is too small"),
        pytest.param(claim(storage_class="local"), volume(phase="Released"), DELAYED, NO_VOLUME, id="the only volume is Released"),
        pytest.param(
            claim(storage_class="local"),
            volume(accessModes=["ReadOnlyMany"]),
            DELAYED,
            NO_VOLUME,
            id="the only volume has other access modes",
        ),
        pytest.param(
            claim(storage_class="local"),
            volume(claimRef={"namespace": "shop", "name": "data"}, phase="Pending"),
            DELAYED,
            "",
            id="a volume is reserved for the claim",
        ),
        pytest.param(
            claim(storage_class="local"),
            volume(claimRef={"namespace": "shop", "name": "other"}),
            DELAYED,
            NO_VOLUME,
            id="the only volume is reserved for another claim",
        ),
        pytest.param(
            claim(storage_class="local"), None, ClassFacts(True, "example.com/disks", []), "", id="a provisioner can make the volume"
        ),
        pytest.param(
            claim(storage_class="local"),
            None,
            ClassFacts(True, "example.com/disks", IN_ZONE_A),
            "",
            id="a provisioner can make the volume in this zone",
        ),
        pytest.param(
            claim(storage_class="local", selected="m"),
            None,
            ClassFacts(True, "example.com/disks", []),
            NO_VOLUME,
            id="a provisioner makes the volume for another node",
        ),
    ],
)
def test_claims(claim_tree: JSONObject, offered: JSONObject | None, device_class: ClassFacts | None, expected: str) -> None:
    only = node(zone="a")
    only.labels["topology.kubernetes.io/zone"] = "a"
    cluster = ClusterFacts(
        [only],
        claims={("shop", "data"): claim_facts(read(PersistentVolumeClaim, claim_tree))},
        volumes={} if offered is None else {"v": volume_facts(read(PersistentVolume, offered))},
        classes={} if device_class is None else {"local": device_class},
    )
    end_condition = judge(pod(**volumes(**CLAIM)), cluster)
    postscript = NONE if expected.startswith("1 ") else NO_STATE
    assert end_condition.message == (f"0/1 nodes are available: {expected}. {postscript}" if expected else "")


def test_pods_are_spread_to_the_domain_with_the_fewest() -> None:
    nodes = [node("a", pod("q", node="a", labels=WEB)), node("b")]
    assert [one.name for one in judge(pod(labels=WEB, **spread()), ClusterFacts(nodes)).fitting] == ["b"]


def test_a_node_that_reports_no_number_of_pods_takes_none() -> None:
    made = node_facts(Node(metadata=ObjectMeta(name="n"), status=NodeStatus(allocatable={"cpu": Quantity("4")})))
    assert judge(pod(), ClusterFacts([made])).message == f"0/1 nodes are available: 1 Too many pods. {NO_VICTIMS}"
