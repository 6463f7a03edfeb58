"""The controller of stage 7, against an API server in this process, with daemons that are sets of addresses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from examples.bitcoin_operator.rpc import Credentials, RpcClient, Unauthenticated
from examples.bitcoin_tutorial.stage1_types.types import BitcoinNetwork, BitcoinNetworkSpec
from examples.bitcoin_tutorial.stage7_events.controller import NetworkController
from kubeloop import Client, Manager, ObjectMeta, Unstructured, set_controller_reference
from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.api.apps.v1 import StatefulSet
from kubeloop.api.core.v1 import Container, Event, Pod, PodCondition, PodSpec, PodStatus, Service
from kubeloop.codegen.crd import definitions_of
from kubeloop.testing import Actions, HandlerServer, consistently, eventually, many, one, with_fake_time
from kubeloop.timing import FakeClock


class Daemons(RpcClient):
    """Daemons by address: the added nodes of each. ``refused`` is the number of requests that they answer with 401."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: dict[str, set[str]] = {}
        self.refused = 0

    async def added_nodes(self, ip: str, credentials: Credentials) -> list[str]:
        if self.refused:
            self.refused -= 1
            raise Unauthenticated(f"daemon {ip} rejected the RPC credentials of user {credentials.user!r}")
        return sorted(self.lists.setdefault(ip, set()))

    async def change_nodes(self, ip: str, _: Credentials, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        self.lists[ip] = (self.lists[ip] | set(add)) - set(remove)


@dataclass
class Stage:
    """A running controller. ``actions`` are its writes."""

    client: Client
    daemons: Daemons
    actions: Actions
    clock: FakeClock

    async def pod(self, ordinal: int, *, ready: bool = True) -> None:
        """Create a pod of the network, as the StatefulSet controller and a kubelet do."""
        metadata = ObjectMeta(name=f"my-network-sts-{ordinal}", namespace="default")
        pod = Pod(metadata=metadata, spec=PodSpec(containers=[Container(name="c", image="i")]))
        set_controller_reference(await self.client.get(StatefulSet, "my-network-sts"), pod)
        pod = await self.client.create(pod)
        pod.status = PodStatus(pod_ip=f"10.0.0.{ordinal}", conditions=[PodCondition(type="Ready", status=str(ready))])
        await self.client.update_status(pod)

    async def network(self, nodes: int) -> None:
        """Create the network and wait for its StatefulSet."""
        await self.client.create(BitcoinNetwork(metadata=ObjectMeta(name="my-network"), spec=BitcoinNetworkSpec(nodes=nodes)))
        await eventually(one(self.client, StatefulSet, "my-network-sts"), {"spec": {"replicas": nodes}})

    async def ready(self, *expected: bool) -> None:
        """Wait until the status says of each daemon whether it is ready."""
        await eventually(one(self.client, BitcoinNetwork, "my-network"), lambda it: [node.ready for node in it.status.nodes] == [*expected])

    async def meshed(self, **lists: set[int]) -> None:
        """Wait until the daemons have these lists: ``a={1}`` says that the daemon of pod 0 lists that of pod 1."""
        expected = {f"10.0.0.{'abc'.index(name)}": {f"10.0.0.{ordinal}" for ordinal in each} for name, each in lists.items()}
        deadline = self.clock.now() + 60
        while self.daemons.lists != expected and self.clock.now() < deadline:
            await with_fake_time(self.clock.sleep(0.1), self.clock)
        assert self.daemons.lists == expected


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    clock = FakeClock()
    async with HandlerServer(clock=clock) as server:
        client, daemons = server.client(), Daemons()
        (definition,) = definitions_of([BitcoinNetwork])
        await client.create(Unstructured.from_dict(definition.document))
        await with_fake_time(client.wait_ready(CustomResourceDefinition, definition.name, timeout=30), clock)
        async with Manager(server.client(user="operator"), [NetworkController(daemons)], clock=clock):
            yield Stage(client, daemons, Actions(server.faults, clock).select(user="operator"), clock)


async def test_a_network_has_a_headless_service_and_a_stateful_set_and_an_event_for_each() -> None:
    async with stage() as at:
        await at.network(4)
        await eventually(one(at.client, Service, "my-network-svc"), {"spec": {"clusterIP": "None", "selector": {"app": "my-network"}}})
        events = await eventually(many(at.client, Event), lambda events: len(events) == 2)
        assert sorted(str(event.message).split(" for ")[0] for event in events) == ["Created headless service", "Created stateful set"]


@pytest.mark.parametrize(
    ("ready", "lists"),
    [
        pytest.param([True, True], {"a": {1}, "b": {0}}, id="two ready daemons list each other"),
        pytest.param([True, True, False], {"a": {1}, "b": {0}}, id="a daemon that is not ready is in no list"),
        pytest.param([False, False], {}, id="without a ready daemon there is no request"),
    ],
)
async def test_a_mesh_has_the_ready_daemons(ready: list[bool], lists: dict[str, set[int]]) -> None:
    async with stage() as at:
        await at.network(len(ready))
        for ordinal, each in enumerate(ready):
            await at.pod(ordinal, ready=each)
        await at.ready(*ready)
        await at.meshed(**lists)


async def test_a_daemon_that_ends_leaves_the_lists_of_the_others() -> None:
    async with stage() as at:
        await at.network(2)
        await at.pod(0)
        await at.pod(1)
        await at.meshed(a={1}, b={0})
        await at.client.delete(Pod, "my-network-sts-1", grace_period_seconds=0)
        await at.meshed(a=set(), b={0})


async def test_a_daemon_that_rejects_the_credentials_is_asked_again_and_an_event_says_why() -> None:
    async with stage() as at:
        at.daemons.refused = 3
        await at.network(1)
        await at.pod(0)
        await eventually(
            many(at.client, Event), lambda events: any("rejected the RPC credentials" in str(event.message) for event in events)
        )
        await at.meshed(a=set())


async def test_a_stateful_set_that_a_person_scales_is_scaled_back() -> None:
    async with stage() as at:
        await at.network(2)
        await at.client.patch(StatefulSet, "my-network-sts", {"spec": {"replicas": 100}})
        await eventually(one(at.client, StatefulSet, "my-network-sts"), {"spec": {"replicas": 2}})


async def test_a_network_in_its_desired_state_causes_no_write() -> None:
    async with stage() as at:
        await at.network(1)
        await at.pod(0)
        await consistently(many(at.client, Event), lambda events: len(events) == 2, seconds=1)
        at.actions.clear()
        await at.client.patch(BitcoinNetwork, "my-network", {"metadata": {"labels": {"seen": "yes"}}})
        await consistently(one(at.client, StatefulSet, "my-network-sts"), bool, seconds=60)
        at.actions.expect("")
