"""What only upstream's kube-controller-manager does: stateful sets, jobs, tokens, slices, budgets, quotas, aggregated roles."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubeloop.api.apps.v1 import ControllerRevision, Deployment, StatefulSet, StatefulSetSpec
from kubeloop.api.authentication.v1 import TokenReview, TokenReviewSpec
from kubeloop.api.batch.v1 import Job, JobSpec
from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.core.v1 import (
    Endpoints,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    Pod,
    PodReadinessGate,
    PodTemplateSpec,
    ResourceQuota,
    ResourceQuotaSpec,
    Secret,
    Service,
    ServicePort,
    ServiceSpec,
    VolumeResourceRequirements,
)
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.api.policy.v1 import PodDisruptionBudget, PodDisruptionBudgetSpec
from kubeloop.api.rbac.v1 import AggregationRule, ClusterRole, PolicyRule
from kubeloop.client import Client
from kubeloop.controlplane.simulation import EXIT_CODE, RUN_SECONDS
from kubeloop.meta import LabelSelector, ObjectMeta, Quantity
from tests.controlplane.workloads import deployment, is_ready, is_rolled_out, pod_spec, template
from tests.realserver.controller_manager import ControllerManager

pytestmark = [pytest.mark.server, pytest.mark.upstream, pytest.mark.timeout(300)]

_LONG = 90.0
#: What it logs when a server answers as none should: lists and watches, discovery, permissions, contents.
_OF_THE_SERVER = re.compile(
    r"reflector\.go|[Ff]ailed to (list|watch)|decod|unmarshal|cannot (get|list|watch|create|update|patch|delete) resource|Unauthorized|"
    r"could not find the requested resource|[Ii]nternal (server )?error|unable to retrieve|panic|legacy_serviceaccount|unknown field"
)
_GATE = "example.com/open"


def stateful_set(name: str, replicas: int, **spec: Any) -> StatefulSet:
    """Its pods are ready when the test opens their gate."""
    pods = template(name)
    pods.spec.readiness_gates = [PodReadinessGate(condition_type=_GATE)]
    selector = LabelSelector(match_labels={"app": name})
    chosen = StatefulSetSpec(replicas=replicas, service_name=name, selector=selector, template=pods, **spec)
    return StatefulSet(metadata=ObjectMeta(name=name), spec=chosen)


async def open_gate(client: Client, name: str) -> None:
    await client.wait_for(Pod, name, lambda one: one.status.phase == "Running", timeout=_LONG)
    change = {"status": {"conditions": [{"type": _GATE, "status": "True"}]}}
    await client.patch(Pod, name, change, type="strategic", subresource="status")
    await client.wait_for(Pod, name, is_ready, timeout=_LONG)


async def names(client: Client) -> list[str]:
    return sorted(pod.metadata.name for pod in await client.list(Pod, namespace=client.namespace))


async def test_pods_of_a_stateful_set_come_one_after_the_other_and_go_in_the_opposite_order(client: Client) -> None:
    await client.create(stateful_set("web", 2))
    await client.wait_for(Pod, "web-0", lambda one: one.status.phase == "Running", timeout=_LONG)
    assert await names(client) == ["web-0"]
    await open_gate(client, "web-0")
    await open_gate(client, "web-1")
    done = await client.wait_for(StatefulSet, "web", lambda one: one.status.ready_replicas == 2, timeout=_LONG)
    assert (done.status.replicas, done.status.current_replicas, done.status.available_replicas) == (2, 2, 2)
    (revision,) = await client.list(ControllerRevision, namespace=client.namespace)
    assert done.status.current_revision == done.status.update_revision == revision.metadata.name
    pod = await client.get(Pod, "web-1")
    assert pod.metadata.labels["apps.kubernetes.io/pod-index"] == "1"
    assert (pod.spec.hostname, pod.spec.subdomain) == ("web-1", "web")
    await client.set_scale(StatefulSet, "web", 1)
    await client.wait_gone(Pod, "web-1", timeout=_LONG)
    await client.wait_for(StatefulSet, "web", lambda one: one.status.replicas == 1, timeout=_LONG)
    assert await names(client) == ["web-0"]


async def test_a_stateful_set_makes_its_claims_and_rolls_out_from_the_last_pod(client: Client) -> None:
    room = VolumeResourceRequirements(requests={"storage": Quantity("1Gi")})
    claim = PersistentVolumeClaim(
        metadata=ObjectMeta(name="data"), spec=PersistentVolumeClaimSpec(access_modes=["ReadWriteOnce"], resources=room)
    )
    made = stateful_set("db", 2, pod_management_policy="Parallel")
    await client.create(made)
    for name in ("db-0", "db-1"):
        await open_gate(client, name)
    before = await client.get(Pod, "db-0")
    await client.patch(StatefulSet, "db", {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}})
    last = await client.wait_for(Pod, "db-1", lambda one: one.metadata.annotations.get("v") == "2", timeout=_LONG)
    assert (await client.get(Pod, "db-0")).metadata.uid == before.metadata.uid
    await open_gate(client, last.metadata.name)
    await client.wait_for(Pod, "db-0", lambda one: one.metadata.annotations.get("v") == "2", timeout=_LONG)
    await open_gate(client, "db-0")
    await client.wait_for(StatefulSet, "db", lambda one: one.status.current_revision == one.status.update_revision, timeout=_LONG)
    with_claim = stateful_set("kept", 1, volume_claim_templates=[claim])
    await client.create(with_claim)
    found = await client.wait_for(PersistentVolumeClaim, "data-kept-0", bool, timeout=_LONG)
    assert (found.status.phase, found.metadata.labels) == ("Pending", {"app": "kept"})


async def test_a_job_is_complete_when_its_pods_succeeded(client: Client) -> None:
    await client.create(Job(metadata=ObjectMeta(name="j"), spec=JobSpec(completions=2, parallelism=2, template=_work({RUN_SECONDS: "10"}))))
    await client.wait_for(Job, "j", lambda one: one.status.active == 2, timeout=_LONG)
    for pod in await client.list(Pod, namespace=client.namespace, label_selector="batch.kubernetes.io/job-name=j"):
        assert pod.metadata.finalizers == ["batch.kubernetes.io/job-tracking"]
    done = await client.wait_for(Job, "j", lambda one: one.status.completion_time is not None, timeout=_LONG)
    assert (done.status.succeeded, done.status.active, done.status.failed) == (2, None, None)
    assert [(one.type, one.status, one.reason) for one in done.status.conditions] == [
        ("SuccessCriteriaMet", "True", "CompletionsReached"),
        ("Complete", "True", "CompletionsReached"),
    ]
    assert [pod.metadata.finalizers for pod in await client.list(Pod, namespace=client.namespace)] == [[], []]


async def test_a_job_fails_when_its_pods_failed_too_often_and_takes_them_along_when_it_is_deleted(client: Client) -> None:
    await client.create(Job(metadata=ObjectMeta(name="j"), spec=JobSpec(backoff_limit=0, template=_work({EXIT_CODE: "1"}))))
    failed = await client.wait_for(Job, "j", lambda one: any(it.type == "Failed" for it in one.status.conditions), timeout=_LONG)
    assert [(one.reason, one.message) for one in failed.status.conditions if one.type == "Failed"] == [
        ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    ]
    (pod,) = await client.list(Pod, namespace=client.namespace)
    await client.delete(Job, "j", propagation_policy="Background")
    await client.wait_gone(Pod, pod.metadata.name, timeout=_LONG)


def _work(annotations: dict[str, str]) -> PodTemplateSpec:
    return PodTemplateSpec(metadata=ObjectMeta(annotations=annotations), spec=pod_spec(restart_policy="Never"))


async def test_a_secret_of_a_service_account_gets_a_token_that_the_server_knows(client: Client) -> None:
    kind, account = "kubernetes.io/service-account-token", {"kubernetes.io/service-account.name": "default"}
    await client.create(Secret(metadata=ObjectMeta(name="t", annotations=account), type=kind))
    secret = await client.wait_for(Secret, "t", lambda one: "token" in one.data, timeout=_LONG)
    assert sorted(secret.data) == ["ca.crt", "namespace", "token"]
    assert secret.data["namespace"].decode() == client.namespace
    answer = await client.create(TokenReview(spec=TokenReviewSpec(token=secret.data["token"].decode())))
    assert answer.status.user.username == f"system:serviceaccount:{client.namespace}:default"


async def test_a_service_has_slices_and_endpoints_of_its_ready_pods(client: Client) -> None:
    ports = [ServicePort(port=80, target_port=8080, protocol="TCP")]
    await client.create(Service(metadata=ObjectMeta(name="s"), spec=ServiceSpec(selector={"app": "d"}, ports=ports)))
    await client.create(deployment("d", 2))
    await client.wait_for(Endpoints, "s", lambda one: one.subsets and len(one.subsets[0].addresses) == 2, timeout=_LONG)
    (piece,) = await client.list(EndpointSlice, namespace=client.namespace, label_selector="kubernetes.io/service-name=s")
    found = await client.wait_for(EndpointSlice, piece.metadata.name, lambda one: len(one.endpoints) == 2, timeout=_LONG)
    pods = sorted(pod.status.pod_ip or "" for pod in await client.list(Pod, namespace=client.namespace))
    assert sorted(one.addresses[0] for one in found.endpoints) == pods
    assert [port.port for port in found.ports] == [8080]
    await client.delete(Service, "s")
    await client.wait_gone(EndpointSlice, piece.metadata.name, timeout=_LONG)


async def test_a_disruption_budget_counts_the_healthy_pods(client: Client) -> None:
    chosen = PodDisruptionBudgetSpec(min_available="50%", selector=LabelSelector(match_labels={"app": "d"}))
    await client.create(PodDisruptionBudget(metadata=ObjectMeta(name="b"), spec=chosen))
    await client.create(deployment("d", 3))
    await client.wait_for(PodDisruptionBudget, "b", lambda one: one.status.current_healthy == 3, timeout=_LONG)
    found = await client.get(PodDisruptionBudget, "b")
    assert (found.status.desired_healthy, found.status.expected_pods, found.status.disruptions_allowed) == (2, 3, 1)


async def test_a_quota_tells_what_is_used_and_forgets_what_is_gone(client: Client) -> None:
    await client.create(ResourceQuota(metadata=ObjectMeta(name="q"), spec=ResourceQuotaSpec(hard={"pods": Quantity("5")})))
    await client.wait_for(ResourceQuota, "q", lambda one: one.status.used.get("pods") == Quantity("0"), timeout=_LONG)
    await client.create(deployment("d", 2))
    await client.wait_for(ResourceQuota, "q", lambda one: one.status.used.get("pods") == Quantity("2"), timeout=_LONG)
    await client.patch(Deployment, "d", {"spec": {"replicas": 0}})
    await client.wait_for(ResourceQuota, "q", lambda one: one.status.used.get("pods") == Quantity("0"), timeout=_LONG)


async def test_an_aggregated_role_has_the_rules_of_those_it_chooses(client: Client) -> None:
    name = str(client.namespace)
    chosen = AggregationRule(cluster_role_selectors=[LabelSelector(match_labels={"for": name})])
    await client.create(ClusterRole(metadata=ObjectMeta(name=name), aggregation_rule=chosen))
    rule = PolicyRule(verbs=["get"], api_groups=["example.com"], resources=["things"])
    await client.create(ClusterRole(metadata=ObjectMeta(name=f"{name}-part", labels={"for": name}), rules=[rule]))
    found = await client.wait_for(ClusterRole, name, lambda one: one.rules, timeout=_LONG)
    assert [(one.verbs, one.api_groups, one.resources) for one in found.rules] == [(["get"], ["example.com"], ["things"])]
    view = await client.wait_for(ClusterRole, "view", lambda one: one.rules, timeout=_LONG)
    assert any("configmaps" in one.resources for one in view.rules)
    for one in (name, f"{name}-part"):
        await client.delete(ClusterRole, one)


async def test_it_is_elected_and_finds_nothing_to_complain_of(client: Client, upstream: ControllerManager) -> None:
    await client.create(deployment("d", 2))
    await client.wait_for(Deployment, "d", is_rolled_out, timeout=_LONG)
    lease = await client.get(Lease, f"test-{upstream.port}", namespace="kube-system")
    assert lease.spec.holder_identity
    # Of two that write at once, of namespaces that end and of kinds whose definition is gone it complains on any server.
    assert [line for line in upstream.complaints if _OF_THE_SERVER.search(line) and "PartialObjectMetadata" not in line] == []
