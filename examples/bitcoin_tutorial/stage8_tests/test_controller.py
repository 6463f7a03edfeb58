"""The controller of stage 7, against an API server in this process, with daemons that are sets of addresses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from examples.bitcoin_operator.rpc import Credentials, CredentialsRejected, RpcClient
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
            raise CredentialsRejected(f"daemon {ip} rejected the RPC credentials of {credentials.user}")
        return sorted(self.lists.setdefault(ip, set()))

    async def change_nodes(self, ip: str, _: Credentials, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        self.lists[ip] = (self.lists[ip] | set(add)) - set(remove)


@dataclass
class Harness:
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
async def running_controller() -> AsyncIterator[Harness]:
    """A running controller, its client, fake daemons, recorded writes and clock."""
    clock = FakeClock()
    async with HandlerServer(clock=clock) as server:
        client, daemons = server.client(), Daemons()
        (definition,) = definitions_of([BitcoinNetwork])
        await client.create(Unstructured.from_dict(definition.document))
        await with_fake_time(client.wait_ready(CustomResourceDefinition, definition.name, timeout=30), clock)
        async with Manager(server.client(user="operator"), [NetworkController(daemons)], clock=clock):
            yield Harness(client, daemons, Actions(server.faults, clock).select(user="operator"), clock)


async def test_a_network_has_a_headless_service_and_a_stateful_set_and_an_event_for_each() -> None:
    async with running_controller() as harness:
        await harness.network(4)
        await eventually(one(harness.client, Service, "my-network-svc"), {"spec": {"clusterIP": "None", "selector": {"app": "my-network"}}})
        events = await eventually(many(harness.client, Event), lambda events: len(events) == 2)
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
    async with running_controller() as harness:
        await harness.network(len(ready))
        for ordinal, each in enumerate(ready):
            await harness.pod(ordinal, ready=each)
        await harness.ready(*ready)
        await harness.meshed(**lists)


async def test_a_daemon_that_ends_leaves_the_lists_of_the_others() -> None:
    async with running_controller() as harness:
        await harness.network(2)
        await harness.pod(0)
        await harness.pod(1)
        await harness.meshed(a={1}, b={0})
        await harness.client.delete(Pod, "my-network-sts-1", grace_period_seconds=0)
        await harness.meshed(a=set(), b={0})


async def test_a_daemon_that_rejects_the_credentials_gets_requests_again_and_an_event_says_why() -> None:
    async with running_controller() as harness:
        harness.daemons.refused = 3
        await harness.network(1)
        await harness.pod(0)
        await eventually(many(harness.client, Event), lambda events: any("rejected the RPC" in str(each.message) for each in events))
        await harness.meshed(a=set())


async def test_a_stateful_set_that_a_person_scales_is_scaled_back() -> None:
    async with running_controller() as harness:
        await harness.network(2)
        await harness.client.patch(StatefulSet, "my-network-sts", {"spec": {"replicas": 100}})
        await eventually(one(harness.client, StatefulSet, "my-network-sts"), {"spec": {"replicas": 2}})


async def test_a_network_in_its_desired_state_causes_no_write() -> None:
    async with running_controller() as harness:
        await harness.network(1)
        await harness.pod(0)
        await consistently(many(harness.client, Event), lambda events: len(events) == 2, seconds=1)
        harness.actions.clear()
        await harness.client.patch(BitcoinNetwork, "my-network", {"metadata": {"labels": {"seen": "yes"}}})
        await consistently(one(harness.client, StatefulSet, "my-network-sts"), bool, seconds=60)
        harness.actions.expect("")
