"""Horizontal pod autoscalers by fake time: what they scale, write and report, and when."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.api.apps.v1 import Deployment, ReplicaSet
from kubeloop.api.autoscaling.v2 import HorizontalPodAutoscaler
from kubeloop.api.core.v1 import Event
from kubeloop.controlplane.autoscaling.horizontal import HorizontalPodAutoscalerController
from kubeloop.controlplane.workloads.deployment import DeploymentController
from kubeloop.controlplane.workloads.replicaset import ReplicaSetController
from kubeloop.meta import Conflict, Quantity
from kubeloop.testing.calls import on
from tests.controlplane.autoscaling import HALF_CPU, autoscaler, serve_cpu
from tests.controlplane.kills import KillScenario, ReadyPods, assert_survives_kills
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.workloads import deployment, replica_set

PERIOD = 15


def busy(name: str = "web", replicas: int = 1) -> Deployment:
    made = deployment(name, replicas)
    made.spec.template.spec.containers[0].resources.requests = {"cpu": Quantity("100m")}
    return made


def workloads() -> tuple[Any, ...]:
    return DeploymentController(), ReplicaSetController(), ReadyPods(), HorizontalPodAutoscalerController()


async def conditions(cluster: FakeTimeCluster, name: str = "web") -> dict[str, tuple[str, str, str]]:
    found = await cluster.client.get(HorizontalPodAutoscaler, name)
    return {one.type: (one.status, one.reason or "", one.message or "") for one in found.status.conditions}


async def events(cluster: FakeTimeCluster) -> set[tuple[str, str]]:
    found = await cluster.client.list(Event, namespace="default")
    return {(one.reason or "", one.message or "") for one in found if one.source.component == "horizontal-pod-autoscaler"}


async def replicas(cluster: FakeTimeCluster, name: str = "web") -> int | None:
    return (await cluster.client.get(Deployment, name)).spec.replicas


async def test_a_busy_workload_grows_and_shrinks_five_minutes_after_it_is_idle() -> None:
    async with simulation(*workloads()) as cluster:
        usage = 100
        await serve_cpu(cluster, lambda: usage)
        await cluster.client.create(busy())
        await cluster.pass_time(400)  # Pods that just started do not count.
        await cluster.client.create(autoscaler())
        await cluster.pass_time(PERIOD + 1)
        assert await replicas(cluster) == 2
        found = await cluster.client.get(HorizontalPodAutoscaler, "web")
        assert (found.status.current_replicas, found.status.desired_replicas) == (1, 2)
        assert found.status.last_scale_time is not None
        current = found.status.current_metrics[0].resource
        assert current is not None
        assert (current.current.average_utilization, current.current.average_value) == (100, Quantity("100m"))
        assert (
            "SuccessfulRescale",
            "New size: 2; reason: cpu resource utilization (percentage of request) above target",
        ) in await events(cluster)
        assert await conditions(cluster) == {
            "AbleToScale": ("True", "SucceededRescale", "the HPA controller was able to update the target scale to 2"),
            "ScalingActive": (
                "True",
                "ValidMetricFound",
                "the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)",
            ),
            "ScalingLimited": ("False", "DesiredWithinRange", "the desired count is within the acceptable range"),
        }
        usage = 0
        await cluster.pass_time(290)
        assert (await conditions(cluster))["AbleToScale"][1] == "ScaleDownStabilized"
        await cluster.pass_time(30)
        assert await replicas(cluster) == 1
        assert ("SuccessfulRescale", "New size: 1; reason: All metrics below target") in await events(cluster)
        assert (await conditions(cluster))["ScalingLimited"][1] == "TooFewReplicas"


async def test_it_is_synced_once_in_a_period_and_writes_nothing_while_nothing_changes() -> None:
    async with simulation(*workloads()) as cluster:
        await serve_cpu(cluster, lambda: 50)
        await cluster.client.create(busy())
        await cluster.pass_time(400)
        await cluster.client.create(autoscaler())
        await cluster.pass_time(PERIOD - 1)
        assert not await conditions(cluster)
        await cluster.pass_time(PERIOD + 1)
        assert (await conditions(cluster))["ScalingActive"][0] == "True"
        cluster.faults.calls.clear()
        await cluster.pass_time(600)
        assert cluster.faults.writes == []
        reads = [call for call in cluster.faults.calls if call.subresource == "scale"]
        assert 38 <= len(reads) <= 41


NOT_FOUND = "the server could not find the requested resource"
WITHOUT_TARGET = "the HPA controller was unable to get the target's current scale: "

TARGETS = [
    pytest.param(autoscaler(), 'deployments.apps "web" not found', id="an object that does not exist"),
    pytest.param(autoscaler(kind="CSIStorageCapacity", api_version="storage.k8s.io/v1"), NOT_FOUND, id="a kind without a scale"),
    pytest.param(
        autoscaler(kind="Shop", api_version="example.com/v1"), 'no matches for kind "Shop" in group "example.com"', id="an unknown kind"
    ),
]


@pytest.mark.parametrize(("made", "message"), TARGETS)
async def test_a_target_without_a_scale(made: HorizontalPodAutoscaler, message: str) -> None:
    async with simulation(HorizontalPodAutoscalerController()) as cluster:
        await cluster.client.create(made)
        await cluster.pass_time(PERIOD + 1)
        assert await conditions(cluster) == {"AbleToScale": ("False", "FailedGetScale", WITHOUT_TARGET + message)}
        assert await events(cluster) == {("FailedGetScale", message)}


def metric(kind: str, **source: Any) -> dict[str, Any]:
    return {"type": kind, kind[0].lower() + kind[1:]: source}


AVERAGE = {"type": "AverageValue", "averageValue": "10"}
NO_CUSTOM_API = "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered"
NO_METRICS_API = f"unable to fetch metrics from resource metrics API: {NOT_FOUND} (get pods.metrics.k8s.io)"
NO_EXTERNAL_API = f"unable to fetch metrics from external metrics API: {NOT_FOUND} (get queue.external.metrics.k8s.io)"
DESCRIBED = {"apiVersion": "v1", "kind": "Service", "name": "web"}

MISSING = [
    pytest.param(
        HALF_CPU,
        "FailedGetResourceMetric",
        f"failed to get cpu utilization: unable to get metrics for resource cpu: {NO_METRICS_API}",
        "failed to get cpu resource metric value: ",
        id="Resource",
    ),
    pytest.param(
        metric("ContainerResource", name="memory", container="c", target={"type": "AverageValue", "averageValue": "1Mi"}),
        "FailedGetContainerResourceMetric",
        f"failed to get memory usage: unable to get metrics for resource memory: {NO_METRICS_API}",
        "failed to get c container metric value: ",
        id="ContainerResource",
    ),
    pytest.param(
        metric("Pods", metric={"name": "requests"}, target=AVERAGE),
        "FailedGetPodsMetric",
        f"unable to get metric requests: {NO_CUSTOM_API}",
        "failed to get pods metric value: ",
        id="Pods",
    ),
    pytest.param(
        metric("Object", metric={"name": "requests"}, describedObject=DESCRIBED, target={"type": "Value", "value": "10"}),
        "FailedGetObjectMetric",
        f"unable to get metric requests: Service on default web/{NO_CUSTOM_API}",
        "failed to get object metric value: ",
        id="Object",
    ),
    pytest.param(
        metric("External", metric={"name": "queue"}, target=AVERAGE),
        "FailedGetExternalMetric",
        f"unable to get external metric default/queue/nil: {NO_EXTERNAL_API}",
        "failed to get queue external metric value: failed to get queue external metric: ",
        id="External",
    ),
]


@pytest.mark.parametrize(("spec", "reason", "cause", "prefix"), MISSING)
async def test_a_metric_whose_api_does_not_exist(spec: dict[str, Any], reason: str, cause: str, prefix: str) -> None:
    async with simulation(*workloads()) as cluster:
        await cluster.client.create(busy())
        await cluster.client.create(autoscaler("web", spec))
        await cluster.pass_time(PERIOD + 1)
        text = f"the HPA was unable to compute the replica count: {cause}"
        assert (await conditions(cluster))["ScalingActive"] == ("False", reason, text)
        summary = f"invalid metrics (1 invalid out of 1), first error is: {prefix}{cause}"
        assert await events(cluster) == {(reason, cause), ("FailedComputeMetricsReplicas", summary)}


async def test_a_working_metric_may_let_a_workload_grow_but_not_shrink_while_another_fails() -> None:
    async with simulation(*workloads()) as cluster:
        usage = 100
        await serve_cpu(cluster, lambda: usage)
        await cluster.client.create(busy())
        await cluster.pass_time(400)
        await cluster.client.create(autoscaler("web", HALF_CPU, metric("External", metric={"name": "queue"}, target=AVERAGE)))
        await cluster.pass_time(PERIOD + 1)
        assert await replicas(cluster) == 2
        usage = 1
        await cluster.pass_time(600)
        assert await replicas(cluster) == 2
        assert (await conditions(cluster))["ScalingActive"][:2] == ("False", "FailedGetExternalMetric")


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        pytest.param(12, 10, "Current number of replicas above Spec.MaxReplicas", id="too many"),
        pytest.param(1, 3, "Current number of replicas below Spec.MinReplicas", id="too few"),
    ],
)
async def test_bounds_hold_without_metrics(start: int, end: int, reason: str) -> None:
    async with simulation(*workloads()) as cluster:
        await cluster.client.create(busy(replicas=start))
        await cluster.client.create(autoscaler(minReplicas=3))
        await cluster.pass_time(PERIOD + 1)
        assert await replicas(cluster) == end
        assert ("SuccessfulRescale", f"New size: {end}; reason: {reason}") in await events(cluster)


async def test_a_workload_that_was_scaled_to_zero_stays_there() -> None:
    async with simulation(*workloads()) as cluster:
        await cluster.client.create(busy(replicas=0))
        await cluster.client.create(autoscaler())
        await cluster.pass_time(PERIOD + 1)
        assert await replicas(cluster) == 0
        text = "scaling is disabled since the replica count of the target is zero"
        assert (await conditions(cluster))["ScalingActive"] == ("False", "ScalingDisabled", text)


async def test_autoscalers_of_the_same_pods_do_not_scale() -> None:
    async with simulation(*workloads()) as cluster:
        await serve_cpu(cluster, lambda: 100)
        await cluster.client.create(busy())
        await cluster.pass_time(400)
        other = autoscaler()
        other.metadata.name = "other"
        await cluster.client.create(other)
        await cluster.pass_time(1)
        await cluster.client.create(autoscaler())
        await cluster.pass_time(2 * PERIOD)
        text = "pods by selector app=web are controlled by multiple HPAs: [default/other default/web]"
        assert (await conditions(cluster))["ScalingActive"] == ("False", "AmbiguousSelector", text)
        assert (await conditions(cluster, "other"))["ScalingActive"] == ("False", "AmbiguousSelector", text)
        assert ("AmbiguousSelector", text) in await events(cluster)
        await cluster.client.delete(HorizontalPodAutoscaler, "other")
        await cluster.pass_time(PERIOD)
        assert (await conditions(cluster))["ScalingActive"][0] == "True"


async def test_a_scale_that_changes_meanwhile_is_written_at_its_new_version() -> None:
    async with simulation(*workloads()) as cluster:
        await cluster.client.create(busy(replicas=12))
        cluster.faults.refuse(Conflict, times=2, matching=on("patch", "deployments/scale"))
        await cluster.client.create(autoscaler())
        await cluster.pass_time(PERIOD + 1)
        assert await replicas(cluster) == 10


async def test_a_refused_scale_is_reported() -> None:
    async with simulation(*workloads()) as cluster:
        await cluster.client.create(busy(replicas=12))
        cluster.faults.refuse(Conflict, times=5, matching=on("patch", "deployments/scale"))
        await cluster.client.create(autoscaler())
        await cluster.pass_time(PERIOD + 1)
        assert await replicas(cluster) == 12
        text = "the HPA controller was unable to update the target scale: refused by a test"
        assert (await conditions(cluster))["AbleToScale"] == ("False", "FailedUpdateScale", text)
        message = "New size: 10; reason: Current number of replicas above Spec.MaxReplicas; error: refused by a test"
        assert ("FailedRescale", message) in await events(cluster)
        await cluster.pass_time(PERIOD)
        assert await replicas(cluster) == 10


async def test_a_replica_set_is_a_target_too() -> None:
    async with simulation(*workloads()) as cluster:
        await cluster.client.create(replica_set("web", 12))
        await cluster.client.create(autoscaler(kind="ReplicaSet", api_version="apps/v1beta1"))
        await cluster.pass_time(PERIOD + 1)
        assert (await cluster.client.get(ReplicaSet, "web")).spec.replicas == 10, "any version of the kind does"


async def grow(cluster: FakeTimeCluster) -> None:
    await serve_cpu(cluster, lambda: 80)
    made = replica_set("web", 1)
    made.spec.template.spec.containers[0].resources.requests = {"cpu": Quantity("100m")}
    await cluster.client.create(made)
    await cluster.pass_time(400)
    await cluster.client.create(autoscaler(kind="ReplicaSet", maxReplicas=3))
    await cluster.pass_time(60)


async def test_it_survives_a_kill_after_each_write_and_a_second_replica() -> None:
    scenario = KillScenario(
        lambda: [HorizontalPodAutoscalerController()],
        grow,
        (HorizontalPodAutoscaler,),
        companions=lambda: [ReplicaSetController(), ReadyPods()],
        settle=600,
    )
    writes = await assert_survives_kills(scenario)
    assert "patch ReplicaSet scale default web" in writes
