"""What remains of Jobs: finished ones are deleted after their time to live, and pods that no Job will count are freed."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.api.batch.v1 import Job
from kubeloop.api.core.v1 import Pod
from kubeloop.controller import set_controller_reference
from kubeloop.controlplane.workloads.job_cleanup import FinishedJobCleaner, JobFinalizerController, seconds_to_expiry
from kubeloop.controlplane.workloads.job_snapshot import TRACKING
from kubeloop.meta import KubeloopError, ObjectMeta, ServiceUnavailable
from tests.controlplane.jobs import NOW, at, job
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.workloads import pod_spec


def ended(kind: str, since: float | None, status: str = "True") -> dict[str, Any]:
    times = {} if since is None else {"lastTransitionTime": at(since)}
    return {"conditions": [{"type": kind, "status": status, **times}]}


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        pytest.param(job(ttlSecondsAfterFinished=10, status=ended("Complete", -4)), 6, id="after success"),
        pytest.param(job(ttlSecondsAfterFinished=10, status=ended("Failed", -4)), 6, id="after failure"),
        pytest.param(job(ttlSecondsAfterFinished=0, status=ended("Complete", -4)), -4, id="at once"),
        pytest.param(job(ttlSecondsAfterFinished=10, status=ended("Complete", 5)), 15, id="clocks differ"),
        pytest.param(job(ttlSecondsAfterFinished=10), None, id="a Job that runs"),
        pytest.param(job(ttlSecondsAfterFinished=10, status=ended("FailureTarget", -4)), None, id="a Job that is about to fail"),
        pytest.param(job(ttlSecondsAfterFinished=10, status=ended("Complete", -4, "False")), None, id="a condition that is false"),
        pytest.param(job(status=ended("Complete", -4)), None, id="no time to live"),
    ],
)
def test_the_time_to_live_counts_from_the_end(job: Job, expected: float | None) -> None:
    assert seconds_to_expiry(job, NOW) == expected


def test_an_end_without_a_time_is_an_error() -> None:
    with pytest.raises(KubeloopError, match="unable to find the time when the Job /j finished"):
        seconds_to_expiry(job(ttlSecondsAfterFinished=10, status=ended("Complete", None)), NOW)


async def finished_job(cluster: FakeTimeCluster, ttl: int) -> None:
    now = cluster.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ")
    await cluster.client.create(job(ttlSecondsAfterFinished=ttl))
    conditions = [{"type": one, "status": "True", "lastTransitionTime": now} for one in ("SuccessCriteriaMet", "Complete")]
    status = {"startTime": now, "completionTime": now, "conditions": conditions}
    await cluster.client.patch(Job, "j", {"status": status}, subresource="status")


async def deletions(cluster: FakeTimeCluster) -> list[Any]:
    return [call.body for call in cluster.faults.calls if call.verb == "delete"]


async def test_a_finished_job_is_deleted_after_its_dependents_when_its_time_has_come() -> None:
    async with simulation(FinishedJobCleaner()) as cluster:
        await finished_job(cluster, 30)
        uid = (await cluster.client.get(Job, "j")).metadata.uid
        await cluster.pass_time(29)
        assert await deletions(cluster) == []
        await cluster.pass_time(2)
        (options,) = await deletions(cluster)
        assert (options["propagationPolicy"], options["preconditions"]["uid"]) == ("Foreground", uid)
        deleted = await cluster.client.get(Job, "j")
        assert (deleted.metadata.finalizers, deleted.metadata.deletion_timestamp is not None) == (["foregroundDeletion"], True)


async def test_a_time_to_live_that_was_raised_counts_although_the_cache_does_not_show_it() -> None:
    async with simulation(FinishedJobCleaner()) as cluster:
        await finished_job(cluster, 30)
        await cluster.pass_time(5)
        async with cluster.faults.hidden_changes(matching=lambda request: request.path.endswith("/jobs")):
            await cluster.client.patch(Job, "j", {"spec": {"ttlSecondsAfterFinished": 90}})
            await cluster.pass_time(40)
        assert await deletions(cluster) == []
        await cluster.pass_time(50)
        assert len(await deletions(cluster)) == 1


async def test_a_pod_whose_job_the_cache_does_not_show_yet_keeps_its_finalizer() -> None:
    async with (
        simulation(JobFinalizerController()) as cluster,
        cluster.faults.hidden_changes(matching=lambda request: request.path.endswith("/jobs")),
    ):
        owner = await cluster.client.create(job())
        made = Pod(metadata=ObjectMeta(name="p", namespace="default", finalizers=[TRACKING]), spec=pod_spec(restart_policy="Never"))
        set_controller_reference(owner, made)
        await cluster.client.create(made)
        await cluster.pass_time(5)
        assert (await cluster.client.get(Pod, "p")).metadata.finalizers == [TRACKING]


async def test_pods_of_a_job_that_is_gone_are_freed_with_a_few_reads_of_the_job() -> None:
    async with simulation() as cluster:
        owner = await cluster.client.create(job())
        for number in range(20):
            made = Pod(metadata=ObjectMeta(name=f"p{number}", namespace="default", finalizers=[TRACKING]), spec=pod_spec())
            set_controller_reference(owner, made)
            await cluster.client.create(made)
        await cluster.client.delete(Job, "j", propagation_policy="Background")
        await cluster.start(JobFinalizerController())
        await cluster.pass_time(5)
        assert [one.metadata.finalizers for one in await cluster.client.list(Pod)] == [[]] * 20
        assert 1 <= sum(call.verb == "get" and call.kind == "Job" for call in cluster.faults.calls) <= 5


async def test_a_deletion_that_fails_is_tried_again() -> None:
    async with simulation(FinishedJobCleaner()) as cluster:
        cluster.faults.refuse(ServiceUnavailable, times=2, matching=lambda request: request.method == "DELETE")
        await finished_job(cluster, 1)
        await cluster.pass_time(20)
        assert (await cluster.client.get(Job, "j")).metadata.deletion_timestamp is not None
