"""Faults: afterwards the mesh equals the ready set, and the controller has written nothing but its own objects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.bitcoin_operator.controller import BitcoinNetworkController
from examples.bitcoin_operator.resources import is_ready
from examples.bitcoin_operator.tests.scripted_daemons import Fault, ScriptedDaemons
from examples.bitcoin_operator.tests.stage import NAME, STS, SVC, Stage, full, ip_of, meshed_with, network, warnings_of
from examples.bitcoin_operator.types import BitcoinNetwork
from kubeloop import Manager
from kubeloop.api.apps.v1 import StatefulSet
from kubeloop.api.core.v1 import Pod, Service
from kubeloop.controller.election import LeaseConfig, LeaseLost
from kubeloop.meta import Conflict, ServiceUnavailable, Status
from kubeloop.serving.request import Request
from kubeloop.testing import Actions, LocalCluster, RecordedCall, eventually, many, on, one
from kubeloop.testing.fake_time import with_fake_time
from kubeloop.testing.kube_cluster import MANAGER, SharedServer

pytestmark = pytest.mark.embedded

Matches = Callable[[Request], bool]

#: Objects that the controller may write.
OWN = {("Service", SVC, ""), ("StatefulSet", STS, ""), ("BitcoinNetwork", NAME, "status")}


def assert_only_own_objects(actions: Actions) -> None:
    """Assert that all writes are about the objects of the network."""
    assert {(call.kind, call.name, call.subresource) for call in actions} <= OWN, repr(actions)


async def assert_formed(at: Stage, ordinals: range) -> None:
    """Wait for the mesh, and assert that lists, writes and warnings are right and that nothing is left to do."""
    await at.meshed(len(ordinals), within=3600)
    await at.quiet(120)
    at.expect_full(ordinals)
    assert_only_own_objects(at.actions)
    at.actions.clear()
    at.daemons.requests.clear()
    await at.quiet(600)
    at.actions.expect("")
    assert at.daemons.requests == []


# --------------------------------------------------------------------------------------------------------------- daemons


@pytest.mark.parametrize("after", [0, 1, 2])
async def test_a_daemon_that_is_killed_between_two_changes_and_restarts(at: Stage, after: int) -> None:
    at.daemons[ip_of(1)].fail_after = after
    await at.start()
    await at.created(4)
    assert len(at.daemons[ip_of(1)].added) == after
    await at.pod(1, ready=False)
    at.daemons[ip_of(1)].restart()
    await at.pod(1, run="2")
    await assert_formed(at, range(4))


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.HANG, Fault.NO_JSON, Fault.ENDLESS])
async def test_a_daemon_that_fails_for_five_minutes_does_not_stop_the_others(at: Stage, fault: Fault) -> None:
    await at.start()
    at.daemons[ip_of(0)].fault = fault
    await at.created(3)
    await at.quiet(300)
    assert at.daemons.lists([ip_of(1), ip_of(2)]) == {ip_of(1): {ip_of(0), ip_of(2)}, ip_of(2): {ip_of(0), ip_of(1)}}
    at.daemons[ip_of(0)].recover()
    await assert_formed(at, range(3))


@pytest.mark.parametrize("seed", range(6))
async def test_pods_that_flap(at: Stage, seed: int) -> None:
    """Pods become unready, restart with and without another address, and their daemons fail, at random times."""
    chance = random.Random(seed)
    await at.start()
    await at.created(4)
    for run in range(2, 30):
        ordinal = chance.randrange(4)
        match chance.randrange(5):
            case 0:
                await at.pod(ordinal, ready=False, run=str(run))
            case 1:
                at.daemons[ip_of(ordinal)].restart()
                await at.pod(ordinal, run=str(run))
            case 2:
                at.daemons[ip_of(ordinal)].fault = chance.choice(list(Fault))
            case 3:
                await at.pod(ordinal, ip=f"10.0.1.{run}", run=str(run))
            case 4:
                await at.quiet(chance.random() * 5)
    for ordinal in range(4):
        at.daemons[ip_of(ordinal)].restart()
        await at.pod(ordinal, run="last")
    await assert_formed(at, range(4))


# ------------------------------------------------------------------------------------------------------------- API server

POINTS = [
    pytest.param(on("patch", Service), id="before the Service is written"),
    pytest.param(on("patch", StatefulSet), id="before the StatefulSet is written"),
    pytest.param(on("patch", "bitcoinnetworks/status"), id="before the status is written"),
    pytest.param(on("watch", Pod), id="while pods are watched again"),
    pytest.param(on("list", "*"), id="while lists are read"),
]


@pytest.mark.parametrize("point", POINTS)
async def test_an_api_server_that_restarts(at: Stage, point: Matches) -> None:
    restarts: list[asyncio.Task[None]] = []

    def restart(_: RecordedCall) -> None:
        stop()
        restarts.append(asyncio.create_task(at.cluster.server.restart()))

    stop = at.cluster.faults.react(restart, matching=point)
    await at.start()
    await at.client.create(network(3))
    await at.stateful_set()
    if not restarts:
        await at.cluster.server.restart()
    await asyncio.gather(*restarts)
    await at.pods(3)
    await assert_formed(at, range(3))


async def test_an_api_server_that_restarts_after_each_change(at: Stage) -> None:
    await at.start()
    await at.client.create(network(3))
    await at.stateful_set()
    for ordinal in range(3):
        await at.cluster.server.restart()
        await at.pod(ordinal)
    await at.cluster.server.restart()
    await at.client.patch(BitcoinNetwork, NAME, {"spec": {"nodes": 2}})
    await at.cluster.server.restart()
    await assert_formed(at, range(2))


def by_controller(matching: Matches) -> Matches:
    """Return a function that matches such requests of the controller only: the test's own requests succeed."""
    return lambda request: matching(request) and MANAGER in str(request.peer_certificate)


def conflicts(at: Stage) -> None:
    at.cluster.faults.refuse(Conflict, times=4, matching=by_controller(on("patch", "*")))


def too_many(at: Stage) -> None:
    at.cluster.faults.refuse_too_many(retry_after=2, times=6, matching=by_controller(on("patch", "*")))


def unavailable(at: Stage) -> None:
    at.cluster.faults.refuse(ServiceUnavailable, times=8, matching=by_controller(on()))


def lost_answers(at: Stage) -> None:
    at.cluster.faults.lose_answers(times=3, matching=by_controller(on("patch", "*")))


def cut_streams(at: Stage) -> None:
    at.cluster.faults.cut_streams()


def short_streams(at: Stage) -> None:
    for kind in (Pod, StatefulSet, BitcoinNetwork):
        for after in (0, 1, 2):
            at.cluster.faults.cut_stream(after=after, matching=by_controller(on("watch", kind)))
    at.cluster.faults.cut_streams()


def expired_streams(at: Stage) -> None:
    at.cluster.faults.expire_streams()


def expired_lists(at: Stage) -> None:
    at.cluster.faults.expire_next(times=3, matching=by_controller(on("list", "*")))
    at.cluster.faults.expire_streams()


def slow_answers(at: Stage) -> None:
    at.cluster.faults.delay(20, times=4, matching=by_controller(on("patch", "*")))


FAULTS = [conflicts, too_many, unavailable, lost_answers, cut_streams, short_streams, expired_streams, expired_lists, slow_answers]


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.__name__.replace("_", " ")) for fault in FAULTS])
async def test_a_network_forms_and_is_scaled_in_spite_of(at: Stage, fault: Callable[[Stage], None]) -> None:
    await at.start()
    await at.client.create(network(2))
    fault(at)
    await eventually(one(at.client, StatefulSet, STS), lambda _: True, within=3600)
    await at.pods(3)
    fault(at)
    await at.quiet(60)
    await at.client.patch(BitcoinNetwork, NAME, {"spec": {"nodes": 3}})
    fault(at)
    await assert_formed(at, range(3))


async def test_a_pod_whose_deletion_no_watch_reported_leaves_the_mesh(at: Stage) -> None:
    await at.start()
    await at.created(3)
    async with at.cluster.faults.hidden_changes(matching=on("watch", Pod)):
        await at.client.delete(Pod, f"{STS}-2", grace_period_seconds=0)
    at.cluster.faults.expire_streams()
    await at.status(lambda obj: obj.status.ready_nodes == 2)
    await at.quiet()
    at.expect_full([0, 1])


# ---------------------------------------------------------------------------------------------------------------- replicas


def replica(at: Stage, name: str) -> Manager:
    """Return a replica of the operator, whose writes have its name as user."""
    lease = LeaseConfig("bitcoin-controller", "default", name)
    controller = BitcoinNetworkController(at.daemons.direct_client(), wait=0.02)
    return Manager(at.cluster.client(user=name), [controller], leader_election=lease, clock=at.clock)


async def test_another_replica_takes_over_from_a_leader_that_is_cut_off(at: Stage) -> None:
    first, second = replica(at, "first"), replica(at, "second")
    await with_fake_time(first.start(), at.clock)
    await at.created(3)
    await at.meshed(3)
    await with_fake_time(second.start(), at.clock)
    await at.quiet(30)
    writes = Actions(at.cluster.faults, at.clock).without("Lease", "Event")
    assert {call.user for call in writes if call.user in ("first", "second")} == {"first"}

    at.cluster.faults.react(lambda call: refusal() if call.user == "first" else None)
    at.daemons[ip_of(1)].restart()
    await at.pod(1, run="2")
    await at.client.patch(BitcoinNetwork, NAME, {"spec": {"nodes": 4}})
    await eventually(one(at.client, StatefulSet, STS), {"spec": {"replicas": 4}}, within=60)
    await at.pods(4, first=3)
    await at.meshed(4)
    await at.quiet(60)
    at.expect_full(range(4))
    accepted = [call for call in writes.accepted() if call.user == "second"]
    assert {(call.kind, call.name, call.subresource) for call in accepted} <= OWN

    await with_fake_time(second.stop(), at.clock)
    with pytest.raises(LeaseLost):
        await with_fake_time(first.stop(), at.clock)


def refusal() -> ServiceUnavailable:
    return ServiceUnavailable(Status(code=503, reason="ServiceUnavailable", message="the replica is cut off"))


# ---------------------------------------------------------------------------------------------------------------- deletion


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(None, id="its daemons answer"),
        pytest.param(Fault.HANG, id="a daemon hangs"),
        pytest.param(Fault.RESET, id="a daemon fails"),
    ],
)
@pytest.mark.parametrize("pods", [0, 1, 3])
async def test_a_network_that_is_deleted_while_it_forms_is_forgotten_and_can_be_created_again(
    at: Stage, pods: int, fault: Fault | None
) -> None:
    at.daemons[ip_of(0)].fault = fault
    await at.start()
    made = await at.client.create(network(3))
    await at.stateful_set()
    await at.pods(pods)
    await at.client.delete(made)
    await at.quiet()
    requests = [task for task in asyncio.all_tasks() if task.get_name().startswith("mesh of")]
    if requests:
        # A reconcile waits for them for a moment of real time, which fake time does not cover.
        assert (await asyncio.wait(requests, timeout=10))[1] == set()
    at.actions.clear()
    at.daemons.requests.clear()
    await at.quiet(300)
    at.actions.expect("")
    assert at.daemons.requests == []

    # The garbage collector's part, which no controller here does.
    for ordinal in range(pods):
        await at.client.delete(Pod, f"{STS}-{ordinal}", grace_period_seconds=0)
    for ordinal in range(3):
        at.daemons[ip_of(ordinal)].restart()
    await at.client.delete(StatefulSet, STS)
    await at.client.delete(Service, SVC)
    await at.client.create(network(3))
    await at.stateful_set()
    await at.pods(3)
    await assert_formed(at, range(3))
    assert await warnings_of(at) == []


# ------------------------------------------------------------------------------------------------------- a cluster with controllers


def listed(daemons: ScriptedDaemons, pods: list[Pod], count: int) -> bool:
    """Return whether there are so many ready pods, and the daemons of all of them list each other and nothing else."""
    ips = [pod.status.pod_ip or "" for pod in pods if is_ready(pod)]
    return len(ips) == count and daemons.lists(ips) == full(ips)


@pytest.mark.timeout(120)
async def test_a_cluster_whose_api_server_is_killed_while_a_network_forms_and_while_it_is_scaled(tmp_path: Path) -> None:
    """The StatefulSet controller, the garbage collector and simulated nodes work, over TLS and in real time."""
    async with LocalCluster(data=tmp_path / "data") as local, ScriptedDaemons() as daemons:
        cluster = SharedServer("default", local.kubeconfig)
        client = cluster.client()
        try:
            await cluster.install(BitcoinNetwork)
            await cluster.start_manager(BitcoinNetworkController(daemons.client()))
            await client.create(network(3))
            await eventually(one(client, StatefulSet, STS), lambda _: True)
            await asyncio.to_thread(local.restart)
            await eventually(one(client, BitcoinNetwork, NAME), meshed_with(3), within=60)
            pods = many(client, Pod, label_selector=f"app={NAME}")
            await eventually(pods, lambda now: listed(daemons, list(now), 3), within=60)

            await client.patch(BitcoinNetwork, NAME, {"spec": {"nodes": 2}})
            await asyncio.to_thread(local.restart)
            await eventually(one(client, BitcoinNetwork, NAME), meshed_with(2), within=60)
            await eventually(pods, lambda now: listed(daemons, list(now), 2), within=60)

            await client.delete(BitcoinNetwork, NAME)
            await eventually(one(client, StatefulSet, STS), None, within=60)
            await eventually(one(client, Service, SVC), None, within=60)
            await eventually(pods, lambda now: not now, within=60)
        finally:
            await cluster.stop_managers()
            await cluster.close()
