"""Jobs by fake time: back-off, deadlines, suspension, adoption, kills between writes, conflicts, and what happens to pods at the end."""

from __future__ import annotations

import asyncio

from kubeloop.api.batch.v1 import Job
from kubeloop.api.core.v1 import Event, Pod
from kubeloop.controller import controller_of
from kubeloop.controlplane.workloads.job import JobController
from kubeloop.controlplane.workloads.job_cleanup import JobFinalizerController
from kubeloop.controlplane.workloads.job_indexes import FAILURES, INDEX
from kubeloop.controlplane.workloads.job_snapshot import TRACKING
from kubeloop.meta import Conflict, Forbidden, InternalError, ObjectMeta, Status
from kubeloop.serving.request import Request
from kubeloop.testing.calls import RecordedCall
from kubeloop.testing.kube_cluster import MANAGER
from tests.controlplane.jobs import indexed, job
from tests.controlplane.kills import kill_points
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.workloads import pod_spec


async def pods_of(cluster: FakeTimeCluster, *phases: str) -> list[Pod]:
    """Return the pods that are not being deleted, oldest first, of these phases."""
    pods = [one for one in await cluster.client.list(Pod) if one.metadata.deletion_timestamp is None]
    pods.sort(key=lambda pod: (str(pod.metadata.creation_timestamp), pod.metadata.annotations.get(INDEX, ""), pod.metadata.name))
    return [one for one in pods if not phases or (one.status.phase or "Pending") in phases]


async def end(cluster: FakeTimeCluster, *pods: Pod, code: int = 0) -> None:
    """Let the containers of pods end now, as a kubelet reports it."""
    phase, now = "Failed" if code else "Succeeded", cluster.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"name": "c", "image": "x:1", "imageID": "", "ready": False, "restartCount": 0}
    status |= {"state": {"terminated": {"exitCode": code, "finishedAt": now}}}
    for one in pods:
        change = {"status": {"phase": phase, "containerStatuses": [status]}}
        await cluster.client.patch(Pod, one.metadata.name, change, type="strategic", subresource="status")


async def run(cluster: FakeTimeCluster, code: int = 0, seconds: float = 2.0) -> None:
    """Let the active pods end, and the controllers react."""
    await end(cluster, *await pods_of(cluster, "Pending", "Running"), code=code)
    await cluster.pass_time(seconds)


async def stored(cluster: FakeTimeCluster, name: str = "j") -> Job:
    return await cluster.client.get(Job, name)


async def reports(cluster: FakeTimeCluster) -> list[tuple[str | None, str | None]]:
    """Return reasons and messages of the events about Jobs, in their order."""
    events = [one for one in await cluster.client.list(Event) if one.involved_object.kind == "Job"]
    return [(one.reason, one.message) for one in sorted(events, key=lambda event: int(event.metadata.resource_version or 0))]


def conditions(job: Job) -> list[tuple[str, str, str | None]]:
    return [(condition.type, condition.status, condition.reason) for condition in job.status.conditions]


def counts(job: Job) -> tuple[int | None, int | None, int | None]:
    return job.status.active, job.status.succeeded, job.status.failed


async def test_a_job_runs_its_pods_in_parallel_until_enough_have_succeeded() -> None:
    async with simulation(JobController(), JobFinalizerController()) as cluster:
        await cluster.client.create(job(completions=3, parallelism=2))
        await cluster.pass_time(2)
        assert counts(await stored(cluster)) == (2, None, None)
        await run(cluster)
        assert counts(await stored(cluster)) == (1, 2, None)
        await run(cluster)
        done = await stored(cluster)
        assert counts(done) == (None, 3, None)
        assert conditions(done) == [("SuccessCriteriaMet", "True", "CompletionsReached"), ("Complete", "True", "CompletionsReached")]
        assert all(not one.metadata.finalizers for one in await pods_of(cluster))
        said = await reports(cluster)
        assert [reason for reason, _ in said] == ["SuccessfulCreate"] * 3 + ["Completed"]
        assert said[-1] == ("Completed", "Job completed")


async def test_a_failed_pod_is_replaced_after_ten_then_twenty_seconds_and_the_job_fails_at_its_limit() -> None:
    async with simulation(JobController(), JobFinalizerController()) as cluster:
        await cluster.client.create(job(backoffLimit=2))
        await cluster.pass_time(2)
        began = cluster.clock.wall()
        for expected in (10, 20):
            failed_at = cluster.clock.wall()
            await run(cluster, code=1, seconds=expected - 1)
            assert await pods_of(cluster, "Pending") == []
            await cluster.pass_time(3)
            (replacement,) = await pods_of(cluster, "Pending")
            assert replacement.metadata.creation_timestamp is not None
            assert 0 <= (replacement.metadata.creation_timestamp - failed_at).total_seconds() - expected <= 1.5
        assert (cluster.clock.wall() - began).total_seconds() < 40
        await run(cluster, code=1)
        done = await stored(cluster)
        assert counts(done) == (None, None, 3)
        assert conditions(done) == [("FailureTarget", "True", "BackoffLimitExceeded"), ("Failed", "True", "BackoffLimitExceeded")]
        assert (await reports(cluster))[-1] == ("BackoffLimitExceeded", "Job has reached the specified backoff limit")


async def test_indexes_fail_each_for_itself_and_their_replacements_know_how_often() -> None:
    async with simulation(JobController(), JobFinalizerController()) as cluster:
        await cluster.client.create(indexed(2, backoffLimitPerIndex=1))
        await cluster.pass_time(2)
        first, second = await pods_of(cluster, "Pending")
        await end(cluster, first, code=1)
        await end(cluster, second)
        await cluster.pass_time(5)
        waiting = await cluster.client.get(Pod, first.metadata.name)
        assert waiting.metadata.finalizers == [TRACKING]
        await cluster.pass_time(7)
        (replacement,) = await pods_of(cluster, "Pending")
        assert (replacement.metadata.annotations[INDEX], replacement.metadata.annotations[FAILURES]) == ("0", "1")
        assert (await cluster.client.get(Pod, first.metadata.name)).metadata.finalizers == []
        await run(cluster, code=1)
        done = await stored(cluster)
        assert (done.status.completed_indexes, done.status.failed_indexes, counts(done)) == ("1", "0", (None, 1, 2))
        assert conditions(done) == [("FailureTarget", "True", "FailedIndexes"), ("Failed", "True", "FailedIndexes")]


async def test_a_success_policy_ends_the_job_and_deletes_the_pods_that_still_run() -> None:
    async with simulation(JobController(), JobFinalizerController()) as cluster:
        await cluster.client.create(indexed(3, 3, successPolicy={"rules": [{"succeededIndexes": "1"}]}))
        await cluster.pass_time(2)
        await end(cluster, (await pods_of(cluster))[1])
        await cluster.pass_time(3)
        done = await stored(cluster)
        assert conditions(done) == [("SuccessCriteriaMet", "True", "SuccessPolicy"), ("Complete", "True", "SuccessPolicy")]
        assert (done.status.completed_indexes, counts(done)) == ("1", (None, 1, None))
        assert len(await pods_of(cluster)) == 1


async def test_the_deadline_ends_a_job_without_an_event_of_a_pod() -> None:
    async with simulation(JobController(), JobFinalizerController()) as cluster:
        await cluster.client.create(job(activeDeadlineSeconds=30))
        await cluster.pass_time(29)
        assert conditions(await stored(cluster)) == []
        await cluster.pass_time(4)
        done = await stored(cluster)
        assert conditions(done) == [("FailureTarget", "True", "DeadlineExceeded"), ("Failed", "True", "DeadlineExceeded")]
        assert (counts(done), await pods_of(cluster)) == ((None, None, 1), [])


async def test_a_suspended_job_loses_its_pods_without_counting_them_and_starts_again_when_resumed() -> None:
    async with simulation(JobController(), JobFinalizerController()) as cluster:
        await cluster.client.create(job(activeDeadlineSeconds=30))
        await cluster.pass_time(20)
        await cluster.client.patch(Job, "j", {"spec": {"suspend": True}})
        await cluster.pass_time(3)
        suspended = await stored(cluster)
        assert (suspended.status.start_time, counts(suspended)) == (None, (None, None, None))
        assert conditions(suspended) == [("Suspended", "True", "JobSuspended")]
        assert await pods_of(cluster) == []
        await cluster.pass_time(60)
        await cluster.client.patch(Job, "j", {"spec": {"suspend": False}})
        await cluster.pass_time(20)
        resumed = await stored(cluster)
        assert (conditions(resumed), counts(resumed)) == ([("Suspended", "False", "JobResumed")], (1, None, None))
        assert resumed.status.start_time is not None
        assert [one for one in await reports(cluster) if one[0] in ("Suspended", "Resumed")] == [
            ("Suspended", "Job suspended"),
            ("Resumed", "Job resumed"),
        ]


async def test_a_pod_that_is_deleted_counts_as_failed_and_is_replaced() -> None:
    async with simulation(JobController(), JobFinalizerController()) as cluster:
        await cluster.client.create(job())
        await cluster.pass_time(2)
        (victim,) = await pods_of(cluster)
        await cluster.client.delete(victim)
        await cluster.pass_time(14)
        (replacement,) = await pods_of(cluster)
        assert replacement.metadata.name != victim.metadata.name
        assert counts(await stored(cluster)) == (1, None, 1)


async def test_an_elastic_job_follows_its_size() -> None:
    async with simulation(JobController(), JobFinalizerController()) as cluster:
        await cluster.client.create(indexed(2, 2))
        await cluster.pass_time(2)
        await cluster.client.patch(Job, "j", {"spec": {"completions": 4, "parallelism": 4}})
        await cluster.pass_time(2)
        assert [one.metadata.annotations[INDEX] for one in await pods_of(cluster)] == ["0", "1", "2", "3"]
        await cluster.client.patch(Job, "j", {"spec": {"completions": 1, "parallelism": 1}})
        await cluster.pass_time(3)
        assert [one.metadata.annotations[INDEX] for one in await pods_of(cluster)] == ["0"]
        await run(cluster)
        assert (await stored(cluster)).status.completed_indexes == "0"


# ------------------------------------------------------------------------------------------------------------------------ ownership


async def test_a_job_with_a_manual_selector_adopts_pods_and_releases_them_with_their_finalizer() -> None:
    async with simulation(JobController(), JobFinalizerController()) as cluster:
        await cluster.client.create(Pod(metadata=ObjectMeta(name="lonely", labels={"app": "x"}), spec=pod_spec(restart_policy="Never")))
        one = job(manualSelector=True, selector={"matchLabels": {"app": "x"}})
        one.spec.template.metadata.labels = {"app": "x"}
        made = await cluster.client.create(one)
        await cluster.pass_time(3)
        adopted = await cluster.client.get(Pod, "lonely")
        owner = controller_of(adopted)
        assert owner is not None
        assert (owner.uid, adopted.metadata.finalizers) == (made.metadata.uid, [TRACKING])
        assert counts(await stored(cluster)) == (1, None, None)
        await cluster.client.patch(Pod, "lonely", {"metadata": {"labels": {"app": "y"}}})
        await cluster.pass_time(3)
        released = await cluster.client.get(Pod, "lonely")
        assert (released.metadata.owner_references, released.metadata.finalizers) == ([], [])
        assert len(await pods_of(cluster)) == 2


async def test_pods_of_a_job_that_is_gone_lose_the_finalizer() -> None:
    async with simulation(JobController(), JobFinalizerController()) as cluster:
        await cluster.client.create(job(completions=2, parallelism=2))
        await cluster.pass_time(2)
        await cluster.client.delete(Job, "j", propagation_policy="Background")
        await cluster.pass_time(3)
        assert [one.metadata.finalizers for one in await cluster.client.list(Pod)] == [[], []]


async def test_a_pod_without_a_job_and_a_pod_of_a_finished_job_lose_the_finalizer() -> None:
    async with simulation(JobController(), JobFinalizerController()) as cluster:
        await cluster.client.create(job())
        await cluster.pass_time(2)
        await run(cluster)
        (done,) = await pods_of(cluster)
        await cluster.client.patch(Pod, done.metadata.name, {"metadata": {"finalizers": [TRACKING]}})
        await cluster.client.create(Pod(metadata=ObjectMeta(name="stray", finalizers=[TRACKING]), spec=pod_spec()))
        await cluster.pass_time(3)
        assert [one.metadata.finalizers for one in await pods_of(cluster)] == [[], []]
        assert (await stored(cluster)).status.succeeded == 1


async def test_a_job_that_another_controller_manages_is_left_alone() -> None:
    async with simulation(JobController(), JobFinalizerController()) as cluster:
        made = await cluster.client.create(job(managedBy="example.com/jobs"))
        await cluster.pass_time(5)
        assert await pods_of(cluster) == []
        assert (await stored(cluster)).metadata.resource_version == made.metadata.resource_version


async def test_a_job_that_was_created_again_begins_without_back_off() -> None:
    async with simulation(JobController(), JobFinalizerController()) as cluster:
        await cluster.client.create(job(backoffLimit=5))
        await cluster.pass_time(2)
        await run(cluster, code=1)
        await cluster.client.delete(Job, "j", propagation_policy="Background")
        await cluster.client.create(job(backoffLimit=5))
        await cluster.pass_time(2)
        assert counts(await stored(cluster)) == (1, None, None)


# --------------------------------------------------------------------------------------------------------------------------- faults


def is_write(call: RecordedCall) -> bool:
    """Return whether a controller changes a Job or a pod."""
    return call.writes and call.user == MANAGER and call.kind in ("Pod", "Job")


class KilledAfter:
    """Refuses all writes of the controllers after a number of them, until they are replaced."""

    def __init__(self, cluster: FakeTimeCluster, writes: int) -> None:
        self.left = writes
        self.revive = cluster.faults.react(self._react)

    def _react(self, call: RecordedCall) -> InternalError | None:
        if not is_write(call):
            return None
        self.left -= 1
        return InternalError(Status(code=500, reason="InternalError", message="killed")) if self.left < 0 else None


async def history(writes: int | None) -> tuple[object, int]:
    """Let the first three pods of a Job fail and three more succeed; kill the controller after its n-th write.

    Returns:
        The final state, and the number of writes.
    """
    async with simulation(JobController()) as cluster:
        killed = KilledAfter(cluster, writes) if writes is not None else None
        await cluster.client.create(job(completions=3, parallelism=3))
        failures = 0
        for _ in range(9):
            await cluster.pass_time(4)
            for one in await pods_of(cluster, "Pending"):
                failures += 1
                await end(cluster, one, code=1 if failures <= 3 else 0)
            await cluster.pass_time(8)
            if killed is not None and killed.left < 0:
                await cluster.stop()
                killed.revive()
                killed = None
                await cluster.start(JobController())
        done, pods = await stored(cluster), await pods_of(cluster)
        phases = sorted((one.status.phase or "", tuple(one.metadata.finalizers)) for one in pods)
        return (counts(done), conditions(done), phases), sum(map(is_write, cluster.faults.calls))


async def test_a_kill_after_any_write_changes_nothing_in_the_end() -> None:
    expected, total = await history(None)
    assert total >= 16
    assert expected == (
        (None, 3, 3),
        [("SuccessCriteriaMet", "True", "CompletionsReached"), ("Complete", "True", "CompletionsReached")],
        [("Failed", ())] * 3 + [("Succeeded", ())] * 3,
    )
    for number in kill_points(total):
        assert (await history(number - 1))[0] == expected, f"killed after write {number}"


async def test_two_controllers_at_once_count_each_pod_once() -> None:
    async with simulation(JobController()) as cluster:
        await cluster.start(JobController())
        await cluster.client.create(job(completions=4, parallelism=2, backoffLimit=20))
        for number in range(8):
            await cluster.pass_time(25)
            await run(cluster, code=int(number == 1), seconds=25)
        done, pods = await stored(cluster), await pods_of(cluster)
        phases = [one.status.phase for one in pods]
        assert conditions(done)[-1] == ("Complete", "True", "CompletionsReached")
        assert ((done.status.succeeded or 0), done.status.failed or 0) == (phases.count("Succeeded"), phases.count("Failed"))
        assert [one.metadata.finalizers for one in pods] == [[]] * len(pods)


async def test_every_status_write_may_conflict() -> None:
    async with simulation(JobController()) as cluster:
        cluster.faults.refuse(Conflict, times=3, matching=lambda request: request.path.endswith("/jobs/j/status"))
        await cluster.client.create(job(completions=2, parallelism=1))
        for _ in range(4):
            cluster.faults.refuse(Conflict, times=1, matching=lambda request: request.path.endswith("/jobs/j/status"))
            await run(cluster, seconds=8)
        done = await stored(cluster)
        assert counts(done) == (None, 2, None)
        assert len(await pods_of(cluster)) == 2


def by_controller(request: Request) -> bool:
    """Return whether only the controller makes such a request: all writes except of the status of pods."""
    return request.method in ("POST", "PUT", "PATCH") and not ("/pods/" in request.path and request.path.endswith("/status"))


async def test_lost_answers_count_no_pod_twice() -> None:
    async with simulation(JobController()) as cluster:
        await cluster.client.create(job(completions=4, parallelism=2))
        for _ in range(6):
            cluster.faults.lose_answers(times=2, matching=lambda request: by_controller(request))
            await cluster.pass_time(20)
            await run(cluster, seconds=20)
        done = await stored(cluster)
        assert counts(done) == (None, 4, None)
        assert len(await pods_of(cluster, "Succeeded")) == 4


async def test_a_pod_whose_creation_got_no_answer_is_not_created_twice_although_the_watch_lags() -> None:
    async with simulation(JobController()) as cluster, cluster.faults.hidden_changes(matching=is_about_pods):
        cluster.faults.lose_answers(times=1, matching=lambda request: request.method == "POST" and is_about_pods(request))
        await cluster.client.create(job())
        await cluster.pass_time(8)
        assert len(await pods_of(cluster)) == 1


def is_about_pods(request: Request) -> bool:
    """Return whether a request is for a list or a watch of pods, or creates one."""
    return request.path.endswith("/pods")


async def test_pods_that_are_refused_are_tried_again_with_growing_delays() -> None:
    async with simulation(JobController()) as cluster:
        quota = Forbidden(Status(code=403, reason="Forbidden", message="exceeded quota: pods"))
        cluster.faults.refuse(quota, times=1000, matching=lambda request: request.method == "POST" and request.path.endswith("/pods"))
        await cluster.client.create(job(completions=200, parallelism=200))
        await cluster.pass_time(60)
        tries = sum(call.verb == "create" and call.kind == "Pod" for call in cluster.faults.writes)
        assert 4 <= tries <= 8
        assert ("FailedCreate", "Error creating: exceeded quota: pods") in await reports(cluster)


async def test_many_pods_need_few_writes_of_the_status() -> None:
    async with simulation(JobController()) as cluster:
        await cluster.client.create(job(completions=60, parallelism=60))
        await cluster.pass_time(3)
        before = len(cluster.faults.writes)
        await asyncio.gather(*(end(cluster, one) for one in await pods_of(cluster)))
        await cluster.pass_time(5)
        assert (await stored(cluster)).status.succeeded == 60
        statuses = [call for call in cluster.faults.writes[before:] if call.kind == "Job"]
        assert len(statuses) <= 4
