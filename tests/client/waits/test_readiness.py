"""What "ready" means, kind by kind."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.client.waits.readiness import is_ready, missing_for_readiness
from kubeloop.meta import WaitFailed

Tree = dict[str, Any]


def tree(kind: str, spec: Tree | None = None, status: Tree | None = None, **metadata: object) -> Tree:
    return {"kind": kind, "metadata": {"name": "x", **metadata}, "spec": spec or {}, "status": status or {}}


def condition(name: str, status: str = "True", **more: object) -> Tree:
    return {"conditions": [{"type": name, "status": status, **more}]}


LOAD_BALANCER: Tree = {"type": "LoadBalancer"}
ROLLED_OUT: Tree = {"observedGeneration": 2, "updatedReplicas": 2, "replicas": 2, "availableReplicas": 2}


@pytest.mark.parametrize(
    "ready",
    [
        pytest.param(tree("Pod", status={"phase": "Running", **condition("Ready")}), id="a pod that is Ready"),
        pytest.param(tree("Pod", status={"phase": "Succeeded", **condition("Ready", "False")}), id="a pod that is done"),
        pytest.param(tree("Deployment", {"replicas": 2}, ROLLED_OUT, generation=2), id="a Deployment that is rolled out"),
        pytest.param(tree("ReplicaSet", {"replicas": 2}, {"readyReplicas": 2}), id="a ReplicaSet with all its replicas ready"),
        pytest.param(
            tree("StatefulSet", {"replicas": 1, "updateStrategy": {"type": "OnDelete"}}, {"readyReplicas": 1}),
            id="a StatefulSet that waits for no client to delete its pods",
        ),
        pytest.param(
            tree("DaemonSet", {"updateStrategy": {"type": "OnDelete"}}, {"desiredNumberScheduled": 2, "numberReady": 2}),
            id="a DaemonSet that waits for no client to delete its pods",
        ),
        pytest.param(tree("Job", status=condition("Complete")), id="a job that is complete"),
        pytest.param(tree("PersistentVolumeClaim", status={"phase": "Bound"}), id="a claim that is bound"),
        pytest.param(tree("PersistentVolume", status={"phase": "Available"}), id="a volume that can be claimed"),
        pytest.param(tree("Namespace", status={"phase": "Active"}), id="a namespace that is active"),
        pytest.param(tree("Node", status=condition("Ready")), id="a node that is Ready"),
        pytest.param(tree("Service", {"type": "ClusterIP"}), id="a service without a load balancer"),
        pytest.param(
            tree("Service", LOAD_BALANCER, {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}), id="a load balancer with an address"
        ),
        pytest.param(tree("CustomResourceDefinition", status=condition("Established")), id="a definition that is established"),
        pytest.param(tree("APIService", status=condition("Available")), id="an extension that answers"),
        pytest.param(tree("CertificateSigningRequest", status={"certificate": "YQ=="}), id="a request with its certificate"),
        pytest.param(tree("ConfigMap"), id="what has no status"),
        pytest.param(tree("Foo", status=condition("Ready")), id="a kind that is not known and Ready"),
        pytest.param(tree("Foo", status=condition("Available")), id="a kind that is not known and Available"),
        pytest.param(tree("Foo", status={"observedGeneration": 3}, generation=3), id="a kind without conditions that was seen"),
    ],
)
def test_ready_is(ready: Tree) -> None:
    assert is_ready(ready)


@pytest.mark.parametrize(
    ("object_", "missing"),
    [
        pytest.param(
            tree("Pod", status=condition("Ready", "False", reason="ContainersNotReady", message="c")),
            "Ready=False (ContainersNotReady: c)",
            id="a pod whose containers are not",
        ),
        pytest.param(tree("Pod"), "no condition Ready", id="a pod that no scheduler has bound"),
        pytest.param(tree("Pod", status=condition("PodScheduled")), "no condition Ready, only PodScheduled", id="a pod that was scheduled"),
        pytest.param(tree("Pod", deletionTimestamp="now"), "it is being deleted", id="whatever is being deleted"),
        pytest.param(
            tree("Deployment", {"replicas": 2}, {**ROLLED_OUT, "availableReplicas": 1}, generation=2),
            'Waiting for deployment "x" rollout to finish: 1 of 2 updated replicas are available...',
            id="a Deployment in kubectl's words",
        ),
        pytest.param(tree("ReplicaSet", {"replicas": 2}, {"readyReplicas": 1}), "1 of 2 replicas are ready", id="too few replicas"),
        pytest.param(
            tree("ReplicaSet", {"replicas": 0}, {"observedGeneration": 1}, generation=2),
            "its controller has not seen the newest spec",
            id="a ReplicaSet whose controller lags behind",
        ),
        pytest.param(tree("Job", status=condition("Suspended")), "no condition Complete, only Suspended", id="a job that is suspended"),
        pytest.param(tree("PersistentVolumeClaim", status={"phase": "Pending"}), "its phase is Pending", id="a claim without a volume"),
        pytest.param(tree("Namespace"), "its phase is not known yet", id="a phase that no controller has written"),
        pytest.param(tree("Service", LOAD_BALANCER), "its load balancer has no address yet", id="a load balancer without an address"),
        pytest.param(tree("CertificateSigningRequest"), "it is not approved yet", id="a request that is not approved"),
        pytest.param(
            tree("CertificateSigningRequest", status=condition("Approved")),
            "its signer has issued no certificate yet",
            id="a request that is approved and not signed",
        ),
        pytest.param(tree("Foo", status=condition("Ready", "Unknown")), "Ready=Unknown", id="a kind that is not known and not Ready"),
        pytest.param(
            tree("Foo", status={"observedGeneration": 1, **condition("Ready")}, generation=2),
            "its controller has not seen the newest spec",
            id="Ready of an older generation",
        ),
    ],
)
def test_the_missing_condition_of(object_: Tree, missing: str) -> None:
    assert missing_for_readiness(object_) == missing
    assert not is_ready(object_)


@pytest.mark.parametrize(
    ("object_", "reason"),
    [
        pytest.param(tree("Pod", status={"phase": "Failed", "message": "evicted"}), 'Pod "x" failed: evicted', id="a pod that failed"),
        pytest.param(
            tree("Job", status=condition("Failed", reason="BackoffLimitExceeded", message="too many")),
            r'Job "x" failed: Failed=True \(BackoffLimitExceeded: too many\)',
            id="a job that failed",
        ),
        pytest.param(tree("PersistentVolumeClaim", status={"phase": "Lost"}), "is Lost: it gave no reason", id="a lost claim"),
        pytest.param(
            tree("CustomResourceDefinition", status=condition("NamesAccepted", "False", reason="PluralConflict")),
            r"NamesAccepted=False \(PluralConflict\)",
            id="a definition whose names are taken",
        ),
        pytest.param(tree("CertificateSigningRequest", status=condition("Denied")), "Denied=True", id="a request that was denied"),
        pytest.param(
            tree("Deployment", status={"observedGeneration": 1, **condition("Progressing", "False", reason="ProgressDeadlineExceeded")}),
            'deployment "x" exceeded its progress deadline',
            id="a Deployment that made no progress",
        ),
    ],
)
def test_nothing_but_a_change_helps(object_: Tree, reason: str) -> None:
    with pytest.raises(WaitFailed, match=reason):
        is_ready(object_)
