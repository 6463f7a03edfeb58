"""Effects of writes on built-in kinds: defaults, dropped fields, generation, status, conversion."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeloop.apiserver.builtin.defaults_core import default_pull_policy
from kubeloop.apiserver.builtin.difference import difference
from tests.apiserver.builtin.write_pipeline import create, strategy, update

PODS = "/api/v1/namespaces/n/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/n/deployments"


def _pod(**container: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "x", **container}]}}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        (f"nginx@sha256:{'0' * 64}", "IfNotPresent"),
        (f"nginx:latest@sha256:{'0' * 64}", "Always"),
        pytest.param("a" * 247, "Always", id="a path of 255 letters, library included, is the longest"),
        pytest.param("a" * 248, "IfNotPresent", id="a longer path is no reference"),
        pytest.param(f"x.io/{'b' * 256}", "IfNotPresent", id="a longer path is none in whatever registry"),
    ],
)
def test_only_latest_images_are_always_pulled(image: str, policy: str) -> None:
    assert default_pull_policy(image) == policy
    assert create(PODS, _pod(image=image)).obj["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, "Burstable"),
        ({"limits": {"cpu": "0"}}, "BestEffort"),
        ({"limits": {"a.b/c": "1"}}, "BestEffort"),
    ],
)
def test_quality_of_service_follows_resources(resources: dict[str, Any], quality: str) -> None:
    assert create(PODS, _pod(resources=resources)).obj["status"]["qosClass"] == quality


@pytest.mark.parametrize(
    ("parallelism", "warns"), [(10_001, True), (10_000, False)], ids=["warns of more than ten thousand pods", "but not of ten thousand"]
)
def test_very_large_indexed_jobs(parallelism: int, warns: bool) -> None:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    spec = {"completionMode": "Indexed", "completions": 100_001, "parallelism": parallelism, "template": {"spec": pod}}
    text = (
        "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to "
        "track completedIndexes when a big number of indexes fail"
    )
    made = create("/apis/batch/v1/namespaces/n/jobs", {"metadata": {"name": "a"}, "spec": spec})
    assert made.warnings == ([f"spec: {text}"] if warns else [])
    cron = {"schedule": "@daily", "jobTemplate": {"spec": spec}}
    made = create("/apis/batch/v1/namespaces/n/cronjobs", {"metadata": {"name": "a"}, "spec": cron})
    assert made.warnings == ([f"spec.jobTemplate.spec: {text}"] if warns else [])


def test_fields_behind_closed_gates_are_dropped() -> None:
    spec = create(PODS, _pod(lifecycle={"stopSignal": "SIGTERM"})).obj["spec"]
    assert "lifecycle" not in spec["containers"][0]
    hooks = {"preStop": {"exec": {"command": ["a"]}}}
    spec = create(PODS, _pod(lifecycle={**hooks, "stopSignal": "SIGTERM"})).obj["spec"]
    assert spec["containers"][0]["lifecycle"] == hooks


def test_a_claim_says_its_source_twice() -> None:
    path = "/api/v1/namespaces/n/persistentvolumeclaims"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}
    source = {"apiGroup": "g", "kind": "X", "name": "a"}
    found = create(path, {"metadata": {"name": "a"}, "spec": {**spec, "dataSourceRef": source}}).obj["spec"]
    assert found["dataSource"] == found["dataSourceRef"] == source
    found = create(path, {"metadata": {"name": "a"}, "spec": {**spec, "dataSource": source}}).obj["spec"]
    assert "dataSource" not in found
    found = create(path, {"metadata": {"name": "a"}, "spec": {**spec, "dataSourceRef": {**source, "namespace": "o"}}}).obj["spec"]
    assert "dataSourceRef" not in found


def test_status_is_out_of_reach_of_the_main_resource() -> None:
    body = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": _pod()["spec"]}}}
    created = create(DEPLOYMENTS, {"metadata": {"name": "a"}, **body, "status": {"replicas": 3}})
    assert created.faults == []
    assert created.obj["status"] == {}
    changed = copy.deepcopy(created.obj)
    changed["status"]["replicas"] = 3
    assert update(DEPLOYMENTS, changed, created.obj).obj["status"] == {}
    changed["spec"]["replicas"] = 7
    found = update(DEPLOYMENTS, changed, created.obj, "status").obj
    assert found["status"]["replicas"] == 3
    assert found["spec"]["replicas"] == 1


def test_a_secret_takes_text() -> None:
    body = {"metadata": {"name": "a"}, "stringData": {"a": "text"}, "data": {"a": "eA==", "b": "eA=="}}
    found = create("/api/v1/namespaces/n/secrets", body).obj
    assert found["data"] == {"a": "dGV4dA==", "b": "eA=="}
    assert "stringData" not in found
    assert found["type"] == "Opaque"


def test_a_namespace_is_active_and_carries_its_name() -> None:
    found = create("/api/v1/namespaces", {"metadata": {"name": "a"}}).obj
    assert found["metadata"]["labels"] == {"kubernetes.io/metadata.name": "a"}
    assert found["spec"] == {"finalizers": ["kubernetes"]}
    assert found["status"] == {"phase": "Active"}


def test_pods_end_with_grace_only_on_a_node() -> None:
    pods = strategy("", "pods")
    assert pods.default_grace is not None
    found = create(PODS, _pod()).obj
    assert pods.default_grace(found) == 0
    found["spec"]["nodeName"] = "n"
    assert pods.default_grace(found) == 30


def test_warns_of_deprecated_and_odd_fields() -> None:
    pod = _pod(env=[{"name": "a", "value": "1"}, {"name": "a", "value": "2"}])
    pod["spec"]["hostIPC"] = False
    found = create(PODS, pod).warnings
    assert found == ['spec.containers[0].env[1]: hides previous definition of "a", which may be dropped when using apply']


def test_a_difference_shows_what_changed() -> None:
    assert difference("core.LocalObjectReference", {"name": "a<"}, {"name": "b"}) == (
        '@@ -1,3 +1,3 @@\n {\n- "Name": "a\\u003c"\n+ "Name": "b"\n }\n'
    )


def test_warns_of_fractions_of_a_byte_in_claims() -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1500m"}}}
    claims = "/api/v1/namespaces/n/persistentvolumeclaims"
    text = 'resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer'
    assert create(claims, {"metadata": {"name": "a"}, "spec": spec}).warnings == [f"spec.{text}"]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    sets: dict[str, Any] = {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": template}
    sets["volumeClaimTemplates"] = [{"metadata": {"name": "v"}, "spec": spec}]
    found = create("/apis/apps/v1/namespaces/n/statefulsets", {"metadata": {"name": "a"}, "spec": sets})
    assert found.warnings == [f"spec.volumeClaimTemplates[0].{text}"]
