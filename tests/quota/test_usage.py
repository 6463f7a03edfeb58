"""What objects use of a quota."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeloop.meta.kinds import GroupResource
from kubeloop.quota import EVALUATED, count_name, evaluator_of, texts_of

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PODS = GroupResource("", "pods")


def used(resource: GroupResource, obj: dict[str, Any]) -> dict[str, str]:
    return texts_of(evaluator_of(resource).usage({"metadata": {"name": "x"}, **obj}, NOW))


def container(name: str = "c", **resources: Any) -> dict[str, Any]:
    return {"name": name, "resources": resources}


CPU = {"cpu", "requests.cpu", "limits.cpu"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"containers": [container(requests={"cpu": "1"}, limits={"cpu": "2"}), container("d", requests={"cpu": "500m"})]},
            {"cpu": "1500m", "requests.cpu": "1500m", "limits.cpu": "2"},
            id="containers add up",
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": "1"})], "initContainers": [container("i", requests={"cpu": "3"})]},
            {"cpu": "3", "requests.cpu": "3"},
            id="init containers run before, so that the larger counts",
        ),
        pytest.param(
            {
                "containers": [container(requests={"cpu": "1"})],
                "initContainers": [
                    {**container("s", requests={"cpu": "2"}), "restartPolicy": "Always"},
                    container("i", requests={"cpu": "1500m"}),
                ],
            },
            {"cpu": "3500m", "requests.cpu": "3500m"},
            id="sidecars run on beside init containers and containers",
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": "1"})], "resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "250m"}},
            {"cpu": "4250m", "requests.cpu": "4250m"},
            id="what the pod says of itself counts, and its overhead on top",
        ),
        pytest.param(
            {"containers": [container(limits={"cpu": "1"})], "overhead": {"cpu": "1"}},
            {"cpu": "1", "requests.cpu": "1", "limits.cpu": "2"},
            id="overhead adds to limits where there are some",
        ),
    ],
)
def test_cpu_of_a_pod(spec: dict[str, Any], expected: dict[str, str]) -> None:
    found = used(PODS, {"spec": spec})
    assert {name: text for name, text in found.items() if name in CPU} == expected
    assert (found["pods"], found["count/pods"]) == ("1", "1")


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param({"status": {"phase": "Succeeded"}}, {"count/pods": "1"}, id="a pod that has ended keeps its place only"),
        pytest.param(
            {"metadata": {"name": "x", "deletionTimestamp": "2026-01-01T11:00:00Z", "deletionGracePeriodSeconds": 30}},
            {"count/pods": "1"},
            id="a pod that should be gone keeps its place only",
        ),
        pytest.param(
            {"metadata": {"name": "x", "deletionTimestamp": "2026-01-01T12:00:10Z", "deletionGracePeriodSeconds": 30}},
            {"count/pods": "1", "pods": "1"},
            id="a terminating pod is still there",
        ),
    ],
)
def test_a_pod_at_its_end(obj: dict[str, Any], expected: dict[str, str]) -> None:
    assert used(PODS, {"spec": {"containers": [container()]}, **obj}) == expected


def test_extended_resources_and_huge_pages_count_as_requests() -> None:
    requests = {"x.example/gpu": "2", "hugepages-2Mi": "4Mi"}
    found = used(PODS, {"spec": {"containers": [container(requests=requests, limits=requests)]}})
    assert {name: text for name, text in found.items() if name not in ("pods", "count/pods")} == {
        "requests.x.example/gpu": "2",
        "hugepages-2Mi": "4Mi",
        "requests.hugepages-2Mi": "4Mi",
    }


def test_a_pod_that_is_resized_uses_the_larger_of_what_it_has_and_wants() -> None:
    status = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "2"}}]}
    spec = {"containers": [container(requests={"cpu": "3"})]}
    assert used(PODS, {"spec": spec, "status": status})["cpu"] == "3"
    infeasible = {**status, "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]}
    assert used(PODS, {"spec": spec, "status": infeasible})["cpu"] == "2"


@pytest.mark.parametrize(
    ("spec", "ports", "balancers"),
    [
        pytest.param({"type": "ClusterIP", "ports": [{"port": 1}]}, "0", "0", id="of a cluster IP none"),
        pytest.param({"type": "NodePort", "ports": [{"port": 1}, {"port": 2}]}, "2", "0", id="of node ports each"),
        pytest.param({"type": "LoadBalancer", "ports": [{"port": 1}]}, "1", "1", id="of a load balancer each"),
        pytest.param(
            {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{"port": 1}, {"port": 2, "nodePort": 30000}]},
            "1",
            "1",
            id="a load balancer without node ports counts the ports that it asks for",
        ),
    ],
)
def test_ports_of_a_service(spec: dict[str, Any], ports: str, balancers: str) -> None:
    found = used(GroupResource("", "services"), {"spec": spec})
    assert (found["services.nodeports"], found["services.loadbalancers"], found["services"]) == (ports, balancers, "1")


def test_storage_of_a_claim_is_rounded_up_and_counts_for_its_class() -> None:
    claim = {"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1500m"}}}}
    assert used(GroupResource("", "persistentvolumeclaims"), claim) == {
        "persistentvolumeclaims": "1",
        "count/persistentvolumeclaims": "1",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "requests.storage": "2",
        "gold.storageclass.storage.k8s.io/requests.storage": "2",
    }


def test_devices_of_a_claim_are_those_of_the_largest_alternative() -> None:
    several = [{"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count} for count in (1, 3)]
    requests = [{"firstAvailable": several}, {"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}]
    found = used(GroupResource("resource.k8s.io", "resourceclaims"), {"spec": {"devices": {"requests": requests}}})
    assert found["gpu.deviceclass.resource.k8s.io/devices"] == "35"


def test_other_kinds_are_counted_some_by_an_older_name_too() -> None:
    assert used(GroupResource("", "configmaps"), {}) == {"count/configmaps": "1", "configmaps": "1"}
    assert used(GroupResource("x.example", "foos"), {}) == {"count/foos.x.example": "1"}
    assert count_name(GroupResource("apps", "deployments")) == "count/deployments.apps"


AFFINITY = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["other"]}]}}


@pytest.mark.parametrize(
    ("scope", "spec", "meets"),
    [
        pytest.param({"scopeName": "BestEffort"}, {"containers": [container()]}, True, id="no requests are best effort"),
        pytest.param({"scopeName": "BestEffort"}, {"containers": [container(limits={"cpu": "1"})]}, False, id="a limit is not best effort"),
        pytest.param({"scopeName": "NotTerminating"}, {"activeDeadlineSeconds": 1}, False, id="a deadline ends a pod"),
        pytest.param({"scopeName": "PriorityClass"}, {}, False, id="a pod without a class has none"),
        pytest.param({"scopeName": "PriorityClass", "operator": "NotIn", "values": ["a"]}, {}, True, id="no class is in no list"),
        pytest.param(
            {"scopeName": "PriorityClass", "operator": "In", "values": ["a"]}, {"priorityClassName": "a"}, True, id="a class is in the list"
        ),
        pytest.param({"scopeName": "CrossNamespacePodAffinity"}, {"affinity": AFFINITY}, True, id="affinity reaches other namespaces"),
    ],
)
def test_a_quota_counts_pods_of_its_scopes(scope: dict[str, Any], spec: dict[str, Any], meets: bool) -> None:
    quota = {"spec": {"scopeSelector": {"matchExpressions": [{"operator": "Exists", **scope}]}}}
    assert EVALUATED[PODS].counts(quota, {"metadata": {}, "spec": spec}) is meets
