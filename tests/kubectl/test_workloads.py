"""kubectl and the built-in controllers: pods run, rollouts finish, children go with their owners."""

from __future__ import annotations

import re

import pytest

from tests.kubectl.manifests import DEPLOYMENT, POD
from tests.kubectl.runner import Kubectl
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.embedded


@pytest.fixture(scope="module")
def server(server_with_controllers: ServerUnderTest) -> ServerUnderTest:
    return server_with_controllers


def test_a_pod_is_scheduled_and_becomes_ready(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    assert kubectl("wait", "pod/solo", "--for=condition=Ready", "--timeout=20s") == "pod/solo condition met\n"
    row = kubectl("get", "pod", "solo", "-o", "wide").splitlines()[1].split()
    assert row[:3] == ["solo", "1/1", "Running"]
    assert re.fullmatch(r"\d+\.\d+\.\d+\.\d+", row[5])


def test_a_command_says_that_the_node_is_simulated(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    kubectl("wait", "pod/solo", "--for=condition=Ready", "--timeout=20s")
    refused = kubectl.refused("exec", "solo", "--", "true")
    assert "simulated node kubeloop-node, whose pods have no containers" in refused
    assert 'ScriptedKubelet(cluster, node="kubeloop-node") of kubeloop.testing serves them (docs/testing.md)' in refused


def test_the_log_of_a_simulated_pod_is_empty_or_what_its_annotation_says(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=POD)
    kubectl("wait", "pod/solo", "--for=condition=Ready", "--timeout=20s")
    assert kubectl("logs", "solo") == ""
    kubectl("annotate", "pod", "solo", "simulated.kubeloop.dev/log=started\nready")
    assert kubectl("logs", "solo", "--tail=1") == "ready\n"


def test_all_components_are_healthy(kubectl: Kubectl) -> None:
    rows = [line.split()[:3] for line in kubectl("get", "componentstatuses").splitlines()[1:]]
    assert sorted(rows) == [[name, "Healthy", "ok"] for name in ("controller-manager", "etcd-0", "scheduler")]


def test_a_pod_that_is_not_restarted_completes(kubectl: Kubectl) -> None:
    kubectl("run", "once", "--image=busybox", "--restart=Never")
    kubectl("wait", "pod/once", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=20s")
    assert kubectl("get", "pod", "once").splitlines()[1].split()[1:3] == ["0/1", "Completed"]


def test_a_rollout_finishes_and_its_status_says_so(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    assert kubectl("rollout", "status", "deployment/web", "--timeout=30s").endswith('deployment "web" successfully rolled out\n')
    assert kubectl("get", "deployment", "web").splitlines()[1].split()[:4] == ["web", "2/2", "2", "2"]


def test_a_new_image_rolls_out_with_a_second_replica_set(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    kubectl("set", "image", "deployment/web", "nginx=nginx:1.27")
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    images = kubectl(
        "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.containers[0].image}", "--field-selector=status.phase=Running"
    )
    assert set(images.split()) == {"nginx:1.27"}
    assert sorted(kubectl("get", "replicaset", "-l", "app=web", "-o", "jsonpath={.items[*].spec.replicas}").split()) == ["0", "2"]


def test_scaling_up_and_down_changes_the_number_of_pods(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("scale", "deployment/web", "--replicas=4")
    kubectl("wait", "deployment/web", "--for=jsonpath={.status.readyReplicas}=4", "--timeout=30s")
    kubectl("scale", "deployment/web", "--replicas=1")
    kubectl("wait", "deployment/web", "--for=jsonpath={.status.replicas}=1", "--timeout=30s")


def test_a_deleted_pod_of_a_deployment_is_replaced(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    victim = kubectl("get", "pods", "-l", "app=web", "-o", "name").split()[0]
    kubectl("delete", victim, "--wait", "--timeout=30s")
    kubectl("wait", "deployment/web", "--for=jsonpath={.status.readyReplicas}=2", "--timeout=30s")
    assert victim not in kubectl("get", "pods", "-l", "app=web", "-o", "name").split()


def test_deleting_a_deployment_deletes_its_replica_sets_and_pods(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    pods = kubectl("get", "pods", "-l", "app=web", "-o", "name").split()
    kubectl("delete", "deployment", "web")
    kubectl("wait", *pods, "--for=delete", "--timeout=30s")
    assert kubectl("get", "replicasets", "-o", "name") == ""


def test_an_orphaning_delete_leaves_the_children(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    kubectl("delete", "deployment", "web", "--cascade=orphan")
    assert len(kubectl("get", "pods", "-l", "app=web", "-o", "name").split()) == 2


def test_a_delete_in_the_foreground_ends_when_the_children_are_gone(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=30s")
    assert kubectl("get", "replicasets,pods", "-l", "app=web", "-o", "name") == ""


def test_deleting_a_namespace_deletes_its_objects(kubectl: Kubectl) -> None:
    other = f"{kubectl.namespace}-b"
    kubectl("create", "namespace", other)
    kubectl("-n", other, "create", "configmap", "inside")
    kubectl("delete", "namespace", other, "--wait", "--timeout=30s")
    assert "NotFound" in kubectl.refused("get", "namespace", other)


def test_describe_of_a_deployment_shows_the_events_of_its_controller(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
    kubectl("rollout", "status", "deployment/web", "--timeout=30s")
    assert re.search(r"Normal\s+ScalingReplicaSet\s.*Scaled up replica set web-\w+ from 0 to 2", kubectl("describe", "deployment", "web"))


def test_nodes_are_ready(kubectl: Kubectl) -> None:
    rows = [line.split() for line in kubectl("get", "nodes").splitlines()[1:]]
    assert rows
    assert all(row[1] == "Ready" for row in rows)
