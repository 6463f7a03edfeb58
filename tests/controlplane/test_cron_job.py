"""CronJobs by fake time: schedules, concurrency, deadlines, history, what a stop or a kill misses, and events."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kubeloop.api.batch.v1 import CronJob, Job
from kubeloop.api.core.v1 import Event
from kubeloop.controller import set_controller_reference
from kubeloop.controlplane.workloads.cron_job import CronJobController
from kubeloop.controlplane.workloads.cron_schedule import SCHEDULED_AT
from kubeloop.meta import Forbidden, InternalError, ObjectMeta, Status
from kubeloop.testing.calls import RecordedCall
from kubeloop.testing.kube_cluster import MANAGER
from tests.controlplane.cron_jobs import cron_job
from tests.controlplane.jobs import job
from tests.controlplane.kills import kill_points
from tests.controlplane.simulated import FakeTimeCluster, simulation

#: Fake time begins at midnight; the first Job of ``*/2 * * * *`` is that of 00:02.
FIRST = "c-29453762"


async def jobs_of(cluster: FakeTimeCluster) -> list[str]:
    return sorted(one.metadata.name for one in await cluster.client.list(Job))


async def finish(cluster: FakeTimeCluster, name: str, kind: str = "Complete") -> None:
    """Let a Job end, as its controller reports it."""
    done, now = await cluster.client.get(Job, name), cluster.clock.wall().replace(microsecond=0)
    announced = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
    times = {"lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ")}
    conditions = [{"type": one, "status": "True", **times} for one in (announced, kind)]
    status: dict[str, object] = {"startTime": times["lastTransitionTime"], "conditions": conditions}
    status |= {"completionTime": times["lastTransitionTime"]} if kind == "Complete" else {}
    await cluster.client.patch(Job, done.metadata.name, {"status": status}, subresource="status")


async def stored(cluster: FakeTimeCluster) -> CronJob:
    return await cluster.client.get(CronJob, "c")


async def reports(cluster: FakeTimeCluster) -> list[tuple[str | None, str | None]]:
    """Return reasons and messages of the events about CronJobs, in their order."""
    events = [one for one in await cluster.client.list(Event) if one.involved_object.kind == "CronJob"]
    return [(one.reason, one.message) for one in sorted(events, key=lambda event: int(event.metadata.resource_version or 0))]


async def test_each_time_gets_a_job_that_is_active_until_it_ends() -> None:
    async with simulation(CronJobController()) as cluster:
        made = await cluster.client.create(cron_job(timeZone="Europe/Berlin"))
        await cluster.pass_time(119)
        assert await jobs_of(cluster) == []
        await cluster.pass_time(2)
        assert await jobs_of(cluster) == [FIRST]
        status = (await stored(cluster)).status
        created = await cluster.client.get(Job, FIRST)
        (active,) = status.active
        assert (active.kind, active.api_version, active.name, active.namespace) == ("Job", "batch/v1", FIRST, "default")
        assert (active.uid, active.resource_version) == (created.metadata.uid, created.metadata.resource_version)
        assert status.last_schedule_time == datetime(2026, 1, 1, 0, 2, tzinfo=UTC)
        (owner,) = created.metadata.owner_references
        assert (owner.uid, owner.controller, owner.block_owner_deletion) == (made.metadata.uid, True, True)
        assert created.metadata.annotations[SCHEDULED_AT] == "2026-01-01T01:02:00+01:00"
        await finish(cluster, FIRST)
        await cluster.pass_time(5)
        status = (await stored(cluster)).status
        assert (status.active, status.last_successful_time) == ([], datetime(2026, 1, 1, 0, 2, 1, tzinfo=UTC))
        assert await reports(cluster) == [
            ("SuccessfulCreate", f"Created job {FIRST}"),
            ("SawCompletedJob", f"Saw completed job: {FIRST}, condition: Complete"),
        ]


@pytest.mark.parametrize(
    ("policy", "jobs", "active", "event"),
    [
        pytest.param("Allow", 2, 2, ("SuccessfulCreate", "Created job c-29453764"), id="Allow: both run"),
        pytest.param(
            "Forbid",
            1,
            1,
            ("JobAlreadyActive", "Not starting job because prior execution is running and concurrency policy is Forbid"),
            id="Forbid: the second waits",
        ),
        pytest.param("Replace", 1, 1, ("SuccessfulDelete", f"Deleted job {FIRST}"), id="Replace: the first is deleted"),
    ],
)
async def test_what_happens_while_the_job_before_still_runs(policy: str, jobs: int, active: int, event: tuple[str, str]) -> None:
    async with simulation(CronJobController()) as cluster:
        await cluster.client.create(cron_job(concurrencyPolicy=policy))
        await cluster.pass_time(245)
        assert (len(await jobs_of(cluster)), len((await stored(cluster)).status.active)) == (jobs, active)
        assert event in await reports(cluster)


async def test_a_time_that_waited_for_the_job_before_gets_its_job_when_that_ends() -> None:
    async with simulation(CronJobController()) as cluster:
        await cluster.client.create(cron_job(concurrencyPolicy="Forbid"))
        await cluster.pass_time(245)
        await finish(cluster, FIRST)
        await cluster.pass_time(1)
        assert await jobs_of(cluster) == [FIRST, "c-29453764"]


async def test_history_is_limited_for_successes_and_failures_apart() -> None:
    async with simulation(CronJobController()) as cluster:
        await cluster.client.create(cron_job(schedule="* * * * *", successfulJobsHistoryLimit=1, failedJobsHistoryLimit=2))
        await cluster.pass_time(1)
        for number in range(7):
            await cluster.pass_time(60)
            (running,) = (one.name or "" for one in (await stored(cluster)).status.active)
            await finish(cluster, running, "Failed" if number % 2 else "Complete")
        await cluster.pass_time(1)
        ends = [one.status.conditions[1].type for one in await cluster.client.list(Job)]
        assert sorted(ends) == ["Complete", "Failed", "Failed"]
        assert ("SuccessfulDelete", "Deleted job c-29453761") in await reports(cluster)


async def test_a_suspended_cron_job_starts_nothing_and_afterwards_only_the_last_missed_time() -> None:
    async with simulation(CronJobController()) as cluster:
        await cluster.client.create(cron_job(suspend=True))
        await cluster.pass_time(600)
        assert await jobs_of(cluster) == []
        await cluster.client.patch(CronJob, "c", {"spec": {"suspend": False}})
        await cluster.pass_time(1)
        assert await jobs_of(cluster) == ["c-29453770"]


async def test_a_time_is_not_caught_up_on_after_its_deadline() -> None:
    async with simulation() as cluster:
        await cluster.client.create(cron_job(schedule="0 * * * *", startingDeadlineSeconds=60))
        await cluster.pass_time(3600 + 90)
        await cluster.start(CronJobController())
        await cluster.pass_time(5)
        assert await jobs_of(cluster) == []
        await cluster.pass_time(3600)
        assert len(await jobs_of(cluster)) == 1


async def test_many_missed_times_are_reported_and_the_last_one_gets_its_job() -> None:
    async with simulation() as cluster:
        await cluster.client.create(cron_job(schedule="* * * * *"))
        await cluster.pass_time(7230)
        await cluster.start(CronJobController())
        await cluster.pass_time(5)
        assert await jobs_of(cluster) == ["c-29453880"]
        text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
        assert ("TooManyMissedTimes", text) in await reports(cluster)


async def test_a_changed_schedule_begins_at_its_next_time() -> None:
    async with simulation(CronJobController()) as cluster:
        await cluster.client.create(cron_job(schedule="0 12 * * *"))
        await cluster.pass_time(330)
        await cluster.client.patch(CronJob, "c", {"spec": {"schedule": "*/5 * * * *"}})
        await cluster.pass_time(200)
        assert await jobs_of(cluster) == []
        await cluster.pass_time(80)
        assert await jobs_of(cluster) == ["c-29453770"]


async def test_a_job_of_another_owner_is_reported_and_not_deleted() -> None:
    async with simulation(CronJobController()) as cluster:
        owner = await cluster.client.create(cron_job())
        manual = job("manual")
        manual.metadata = ObjectMeta(name="manual", namespace="default")
        set_controller_reference(owner, manual)
        await cluster.client.create(manual)
        await cluster.pass_time(5)
        assert ("UnexpectedJob", "Saw a job that the controller did not create or forgot: manual") in await reports(cluster)
        await finish(cluster, "manual")
        await cluster.pass_time(5)
        status = (await stored(cluster)).status
        assert (status.active, status.last_successful_time is not None) == ([], True)


async def test_an_active_job_that_is_gone_is_reported_as_missing() -> None:
    async with simulation(CronJobController()) as cluster:
        await cluster.client.create(cron_job())
        await cluster.pass_time(121)
        await cluster.client.delete(Job, FIRST, propagation_policy="Background")
        await cluster.pass_time(5)
        assert (await stored(cluster)).status.active == []
        assert ("MissingJob", f"Active job went missing: {FIRST}") in await reports(cluster)


@pytest.mark.parametrize(
    ("schedule", "event"),
    [
        pytest.param(
            "59 23 31 2 *",
            ("InvalidSchedule", "invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 second"),
            id="a schedule that is never due",
        ),
    ],
)
async def test_a_schedule_that_cannot_work_is_reported_and_nothing_spins(schedule: str, event: tuple[str, str]) -> None:
    async with simulation(CronJobController()) as cluster:
        await cluster.client.create(cron_job(schedule=schedule))
        await cluster.pass_time(3600)
        assert await reports(cluster) == [event]
        assert not [call for call in cluster.faults.writes if call.kind in ("Job", "CronJob") and call.user == MANAGER]


async def test_a_job_that_is_refused_is_tried_again_with_growing_delays() -> None:
    async with simulation(CronJobController()) as cluster:
        refused = Forbidden(Status(code=403, reason="Forbidden", message="exceeded quota: jobs"))
        cluster.faults.refuse(refused, times=10_000, matching=lambda request: request.method == "POST" and request.path.endswith("/jobs"))
        await cluster.client.create(cron_job(schedule="0 * * * *"))
        await cluster.pass_time(3600 + 60)
        assert sum(call.verb == "create" and call.kind == "Job" for call in cluster.faults.calls) <= 20
        assert ("FailedCreate", "Error creating job: exceeded quota: jobs") in await reports(cluster)


def is_write(call: RecordedCall) -> bool:
    return call.writes and call.user == MANAGER and call.kind in ("Job", "CronJob")


async def history(writes: int | None) -> tuple[object, int]:
    """Let a CronJob with a history of one run three times; kill its controller after its n-th write.

    Returns:
        The final state, and the number of writes.
    """
    async with simulation(CronJobController()) as cluster:
        left = 10_000 if writes is None else writes

        def react(call: RecordedCall) -> InternalError | None:
            nonlocal left
            if not is_write(call):
                return None
            left -= 1
            return InternalError(Status(code=500, reason="InternalError", message="killed")) if left < 0 else None

        revive = cluster.faults.react(react)

        async def replace_if_killed() -> None:
            nonlocal left
            if left < 0:
                await cluster.stop()
                revive()
                left = 10_000
                await cluster.start(CronJobController())
            await cluster.pass_time(1)

        await cluster.client.create(cron_job(successfulJobsHistoryLimit=1))
        await cluster.pass_time(10)
        for _ in range(3):
            await cluster.pass_time(60)
            for _ in range(2):
                await cluster.pass_time(29)
                await replace_if_killed()
            for name in [one.metadata.name for one in await cluster.client.list(Job) if not one.status.conditions]:
                await finish(cluster, name)
        await cluster.pass_time(20)
        await replace_if_killed()
        status = (await stored(cluster)).status
        jobs = [(one.metadata.name, one.status.conditions[-1].type) for one in await cluster.client.list(Job)]
        return (status.active, status.last_schedule_time, jobs), sum(map(is_write, cluster.faults.calls))


async def test_a_kill_after_any_write_changes_nothing_in_the_end() -> None:
    expected, total = await history(None)
    assert total >= 8
    for number in kill_points(total):
        assert (await history(number - 1))[0] == expected, f"killed after write {number}"
