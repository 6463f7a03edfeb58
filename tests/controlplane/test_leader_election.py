"""The Leases of the control plane: controllers and scheduler are elected independently of each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager

import pytest

from kubeloop.api.coordination.v1 import Lease, LeaseSpec
from kubeloop.api.core.v1 import ConfigMap, Event
from kubeloop.client import Client
from kubeloop.controller import Manager
from kubeloop.controller.election import LeaseConfig, LeaseLost
from kubeloop.controlplane import run
from kubeloop.controlplane.leader_election import ControlPlaneLeases, ElectedRunnable, server_leases
from kubeloop.meta import NotFound, ObjectMeta
from kubeloop.tasks import end_tasks
from kubeloop.testing import HandlerServer, TlsTestServer
from kubeloop.timing import FakeClock
from tests.controller.election.candidates import StallingClock
from tests.controller.manager.test_order import Noted

pytestmark = pytest.mark.embedded

CONTROLLERS, SCHEDULER = "kube-controller-manager", "kube-scheduler"


@pytest.fixture
def clock() -> StallingClock:
    return StallingClock()


@pytest.fixture
async def server(clock: StallingClock) -> AsyncIterator[HandlerServer]:
    async with HandlerServer(clock=clock) as found:
        yield found


async def holder(client: Client, name: str) -> str | None:
    """Return the holder of a Lease: "" if it was released, None if there is no such Lease."""
    try:
        return (await client.get(Lease, name, namespace="kube-system")).spec.holder_identity or ""
    except NotFound:
        return None


async def hold(client: Client, name: str) -> None:
    """Let another program hold a Lease."""
    lease = Lease(
        metadata=ObjectMeta(name=name, namespace="kube-system"), spec=LeaseSpec(holder_identity="upstream", lease_duration_seconds=900)
    )
    await client.create(lease)


async def until(clock: FakeClock, work: Awaitable[object]) -> None:
    """Let time pass until ``work`` is done."""
    waiting = asyncio.ensure_future(work)
    async with asyncio.timeout(20):
        while not waiting.done():
            await clock.advance(0.1)
            await asyncio.sleep(0.001)
    waiting.result()


def config(identity: str = "a") -> LeaseConfig:
    return LeaseConfig(SCHEDULER, "kube-system", identity)


async def test_a_runnable_works_while_it_holds_its_lease_and_gives_it_back_when_it_has_ended(
    server: HandlerServer, clock: FakeClock
) -> None:
    log: list[str] = []
    client, noted = server.client(), Noted("noted", log, endless=True)
    async with Manager(client, [ElectedRunnable(noted, config())], clock=clock, grace=0):
        await until(clock, noted.started.wait())
        assert log == ["noted connects", "noted synced", "noted runs"]
        assert await holder(client, SCHEDULER) == "a"
    assert await holder(client, SCHEDULER) == ""
    assert [event.message async for event in client.list(Event, namespace="kube-system")] == ["a became leader", "a stopped leading"]


async def test_a_runnable_whose_lease_another_holds_has_synced_caches_and_ends_at_once_on_a_stop(
    server: HandlerServer, clock: FakeClock
) -> None:
    log: list[str] = []
    await hold(server.client(), SCHEDULER)
    async with Manager(server.client(), [ElectedRunnable(Noted("noted", log), config())], clock=clock):
        await clock.advance(60)
    assert log == ["noted connects", "noted synced", "noted closes"]
    assert await holder(server.client(), SCHEDULER) == "upstream"


async def test_a_lost_lease_cancels_the_runnable_and_ends_the_manager(server: HandlerServer, clock: FakeClock) -> None:
    log: list[str] = []
    client, noted = server.client(), Noted("noted", log, endless=True)
    running = asyncio.create_task(Manager(client, [ElectedRunnable(noted, config())], clock=clock).run(signals=False))
    await until(clock, noted.started.wait())
    taken = await client.get(Lease, SCHEDULER, namespace="kube-system")
    taken.spec.holder_identity = "upstream"
    await server.client().update(taken)
    with pytest.raises(LeaseLost, match='"upstream" holds it'):
        await until(clock, running)
    assert log[-1] == "noted closes"


async def test_a_write_after_the_lease_has_expired_is_not_sent(server: HandlerServer, clock: StallingClock) -> None:
    client, refused = server.client(), asyncio.Event()

    class Writes(Noted):
        async def run(self) -> None:
            clock.stall(11)
            with pytest.raises(LeaseLost):
                await client.create(ConfigMap(metadata=ObjectMeta(name="late", namespace="default")))
            refused.set()

    manager = Manager(client, [ElectedRunnable(Writes("writes", []), config())], clock=clock, grace=0)
    with pytest.raises(LeaseLost, match=r"not renewed for 11\.0 s"):
        await until(clock, manager.run(signals=False))
    assert refused.is_set()


async def test_a_server_that_is_started_again_with_its_objects_is_the_same_candidate(server: HandlerServer) -> None:
    leases = await server_leases(server.client())
    assert leases == await server_leases(server.client())
    assert [
        (one.namespace, one.name, one.lease_duration, one.renew_deadline, one.retry_period)
        for one in (leases.controllers, leases.scheduler)
    ] == [
        ("kube-system", CONTROLLERS, 15, 10, 2),
        ("kube-system", SCHEDULER, 15, 10, 2),
    ]


@asynccontextmanager
async def control_plane(server: TlsTestServer, selection: str) -> AsyncIterator[asyncio.Event]:
    """Run a control plane without nodes. The event is set when it is ready."""
    ready = asyncio.Event()
    leases = ControlPlaneLeases(*(LeaseConfig(name, "kube-system", "ours", retry_period=0.05) for name in (CONTROLLERS, SCHEDULER)))
    running = asyncio.create_task(
        run(server.config, nodes=(), selection=selection, leases=leases, grace=0.0, ready=lambda manager: ready.set())
    )
    try:
        yield ready
    finally:
        await end_tasks(running)


@pytest.mark.parametrize(
    ("held", "selection", "holders"),
    [
        pytest.param((), "deployment,default-scheduler", ("ours", "ours"), id="both work when no other process does"),
        pytest.param(
            (CONTROLLERS,),
            "deployment,default-scheduler",
            ("upstream", "ours"),
            id="the scheduler works beside another kube-controller-manager",
        ),
        pytest.param(
            (SCHEDULER,), "deployment,default-scheduler", ("ours", "upstream"), id="the controllers work beside another kube-scheduler"
        ),
        pytest.param((), "deployment", ("ours", None), id="without a scheduler its Lease is left alone"),
        pytest.param((CONTROLLERS,), "default-scheduler", ("upstream", "ours"), id="a scheduler alone needs its own Lease only"),
    ],
)
async def test_each_lease_has_the_expected_holder(
    in_loop_server: TlsTestServer, held: tuple[str, ...], selection: str, holders: tuple[str | None, str | None]
) -> None:
    async with in_loop_server.client() as client:
        for name in held:
            await hold(client, name)
        async with control_plane(in_loop_server, selection) as ready:
            for name, expected in zip((CONTROLLERS, SCHEDULER), holders, strict=True):
                if expected == "ours":
                    await client.wait_for(
                        Lease, name, lambda lease: lease.spec.holder_identity == "ours", namespace="kube-system", timeout=30
                    )
            if holders[0 if "deployment" in selection else 1] == "ours":  # Otherwise it is never ready.
                async with asyncio.timeout(30):
                    await ready.wait()
            assert (await holder(client, CONTROLLERS), await holder(client, SCHEDULER)) == holders
        released = tuple("" if one == "ours" else one for one in holders)
        assert (await holder(client, CONTROLLERS), await holder(client, SCHEDULER)) == released
