"""Two CronJob controllers create one Job for each time; two schedulers bind each pod once, and if elected only where there is room."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeloop.api.batch.v1 import CronJob, Job
from kubeloop.api.core.v1 import Pod
from kubeloop.controller import ControllerBase, GraceExceeded, Manager, Runnable
from kubeloop.controller.election import LeaseConfig, LeaseLost
from kubeloop.controlplane.leader_election import ElectedRunnable
from kubeloop.controlplane.scheduling.scheduler import Scheduler
from kubeloop.controlplane.workloads.cron_job import CronJobController
from kubeloop.serving.request import Request
from kubeloop.testing.calls import RecordedCall
from tests.controlplane.cron_jobs import cron_job
from tests.controlplane.kills import kill_points, user_of
from tests.controlplane.simulated import FakeTimeCluster, simulation
from tests.controlplane.test_cron_job import FIRST, finish
from tests.controlplane.test_scheduler import pod

#: The users of the two replicas.
A, B = "replica-a", "replica-b"


@asynccontextmanager
async def replicas(cluster: FakeTimeCluster, controllers: Sequence[ControllerBase[Any] | Runnable]) -> AsyncIterator[None]:
    """Run the controllers, each in a separate manager with a separate user."""
    managers = []
    for user, controller in zip((A, B), controllers, strict=True):
        manager = Manager(cluster.server.client(user=user), [controller], clock=cluster.clock, grace=0)
        managers.append(manager)
        await cluster.drive(manager.start())
    try:
        yield
    finally:
        for manager in managers:
            await cluster.drive(_stop(manager))


async def _stop(manager: Manager) -> None:
    with contextlib.suppress(GraceExceeded, LeaseLost):
        await manager.stop()


# -------------------------------------------------------------------------------------------------------------------- CronJob


def created_jobs(cluster: FakeTimeCluster) -> Counter[str]:
    """Return how often each Job was created."""
    calls = (call for call in cluster.faults.calls if call.verb == "create" and call.kind == "Job" and call.code == 201)
    return Counter(call.body["metadata"]["name"] for call in calls)


@pytest.mark.parametrize("hidden", ["nothing", "jobs", "cronjobs"])
@pytest.mark.parametrize("policy", ["Allow", "Replace"])
async def test_two_cron_job_controllers_create_one_job_for_each_time(policy: str, hidden: str) -> None:
    """The second controller is slow, and its cache may not show the work of the first one."""

    def is_hidden(request: Request) -> bool:
        return user_of(request) == B and request.path.endswith(f"/{hidden}")

    async with simulation() as cluster, replicas(cluster, [CronJobController(), CronJobController()]):
        cluster.faults.delay(0.5, times=1000, matching=lambda request: user_of(request) == B and request.method != "GET")
        await cluster.client.create(cron_job(concurrencyPolicy=policy))
        await cluster.pass_time(60)
        async with cluster.faults.hidden_changes(matching=is_hidden):
            await cluster.pass_time(65)
            await finish(cluster, FIRST)
            await cluster.pass_time(240)
        await cluster.pass_time(120)
        created = created_jobs(cluster)
        assert created == dict.fromkeys([f"c-{29453762 + 2 * number}" for number in range(len(created))], 1)
        assert len(created) == 4
        active = [one.name for one in (await cluster.client.get(CronJob, "c")).status.active]
        running = [one.metadata.name async for one in cluster.client.list(Job) if not one.status.conditions]
        assert sorted(active, key=str) == sorted(running)
        assert len(running) == (1 if policy == "Replace" else 3)


async def test_two_cron_job_controllers_that_may_not_overlap_run_one_job_at_a_time() -> None:
    async with simulation() as cluster, replicas(cluster, [CronJobController(), CronJobController()]):
        await cluster.client.create(cron_job(concurrencyPolicy="Forbid"))
        await cluster.pass_time(245)
        assert created_jobs(cluster) == {FIRST: 1}
        await finish(cluster, FIRST)
        await cluster.pass_time(5)
        assert created_jobs(cluster) == {FIRST: 1, "c-29453764": 1}


# ------------------------------------------------------------------------------------------------------------------ scheduler


def bindings(cluster: FakeTimeCluster, user: str = "") -> list[tuple[str, str]]:
    """Return pod and node of each successful binding, by one user or all."""
    made = (call for call in cluster.faults.calls if call.subresource == "binding" and call.code == 201 and user in ("", call.user))
    return [(call.name, call.body["target"]["name"]) for call in made]


async def test_two_active_schedulers_bind_each_pod_once() -> None:
    """The second scheduler does not see the bindings of the first one; without an election both may use the same room."""

    def is_hidden(request: Request) -> bool:
        return user_of(request) == B and request.path.endswith("/pods")

    async with simulation() as cluster, replicas(cluster, [Scheduler(), Scheduler()]):
        for name in ("a", "b"):
            await cluster.add_node(name, cpu="100")
        await cluster.pass_time(5)
        for number in range(10):
            await cluster.client.create(pod(f"p{number}"))
        async with cluster.faults.hidden_changes(matching=is_hidden):
            await cluster.pass_time(60)
        for number in range(10, 20):
            await cluster.client.create(pod(f"p{number}"))
        await cluster.pass_time(60)
        assert Counter(name for name, _ in bindings(cluster)) == {f"p{number}": 1 for number in range(20)}
        assert {one.metadata.name: one.spec.node_name async for one in cluster.client.list(Pod)} == dict(bindings(cluster))


def elected_scheduler(identity: str) -> ElectedRunnable:
    return ElectedRunnable(Scheduler(), LeaseConfig("kube-scheduler", "kube-system", identity))


@pytest.mark.parametrize("killed", [pytest.param(True, id="killed"), pytest.param(False, id="cut off from its Lease")])
async def test_an_elected_scheduler_whose_leader_fails_binds_each_pod_once_and_only_where_there_is_room(killed: bool) -> None:
    """Ten pods arrive while the leader fails after its n-th binding; the nodes have room for eight."""
    for number in kill_points(8):
        async with simulation() as cluster:
            dead = False

            def reaches(request: Request) -> bool:
                return dead and user_of(request) == A and (killed or "/leases" in request.path)  # noqa: B023  # of this round

            def count(_: RecordedCall) -> None:
                nonlocal dead
                dead = dead or len(bindings(cluster)) >= number  # noqa: B023  # of this round

            cluster.faults.break_answers(matching=reaches)
            cluster.faults.on_answer(count)
            for name in ("a", "b"):
                await cluster.add_node(name, cpu="4")
            async with replicas(cluster, [elected_scheduler(A), elected_scheduler(B)]):
                for index in range(10):
                    await cluster.client.create(pod(f"p{index}"))
                    await cluster.pass_time(3)
                await cluster.pass_time(60)
                made = bindings(cluster)
                case = f"after {number} bindings: {made}"
                assert set(Counter(name for name, _ in made).values()) == {1}, case
                assert Counter(node for _, node in made) == {"a": 4, "b": 4}, case
                assert len(bindings(cluster, A)) >= number, case
                if killed:
                    assert len(bindings(cluster, A)) == number, case
                waiting = [one.status.conditions[0].reason async for one in cluster.client.list(Pod) if not one.spec.node_name]
                assert waiting == ["Unschedulable"] * 2, case
