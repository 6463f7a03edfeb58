"""A server with the kind BitcoinNetwork, scripted daemons, and the controller. No other controller runs: the test makes the pods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from examples.bitcoin_operator.controller import BitcoinNetworkController
from examples.bitcoin_operator.rpc import RpcClient
from examples.bitcoin_operator.tests.scripted_daemons import ScriptedDaemons
from examples.bitcoin_operator.types import BitcoinNetwork, BitcoinNetworkSpec
from kubeloop import Client, Manager, ObjectMeta
from kubeloop.api.apps.v1 import StatefulSet
from kubeloop.api.core.v1 import (
    ConfigMap,
    ContainerState,
    ContainerStateRunning,
    ContainerStatus,
    Event,
    Pod,
    PodCondition,
    PodStatus,
    Secret,
)
from kubeloop.controller import set_controller_reference
from kubeloop.meta import NotFound
from kubeloop.testing import Actions, consistently, eventually, one
from kubeloop.testing.kube_cluster import OwnServer, own_server
from kubeloop.timing import FakeClock

NAME = "net"
STS, SVC = f"{NAME}-sts", f"{NAME}-svc"
#: Seconds of the fake clock after which no retry is left but those of failed daemons.
LONG = 300.0


def network(nodes: int = 3, *, name: str = NAME, secret: str = "") -> BitcoinNetwork:
    return BitcoinNetwork(metadata=ObjectMeta(name=name, namespace="default"), spec=BitcoinNetworkSpec(nodes=nodes, secret=secret))


def ip_of(ordinal: int) -> str:
    return f"10.0.0.{ordinal + 1}"


def full(ips: Sequence[str]) -> dict[str, set[str]]:
    """Return the lists of a full mesh."""
    return {ip: set(ips) - {ip} for ip in ips}


def meshed_with(nodes: int) -> Callable[[BitcoinNetwork], bool]:
    """Return a function that says whether a network has so many ready nodes, and all are connected."""

    def full_mesh(obj: BitcoinNetwork) -> bool:
        meshed = [each.status for each in obj.status.conditions if each.type == "Meshed"]
        return obj.spec.nodes == obj.status.ready_nodes == nodes and meshed == ["True"]

    return full_mesh


class Stage:
    """The test's side of the cluster.

    Attributes:
        cluster: The server.
        client: A client of an administrator.
        clock: The clock of server and managers.
        daemons: The daemons behind the addresses of the pods.
        actions: The writes of the controller, without Events and Leases.
    """

    def __init__(self, cluster: OwnServer, clock: FakeClock, daemons: ScriptedDaemons) -> None:
        self.cluster, self.clock, self.daemons = cluster, clock, daemons
        self.client: Client = cluster.client()
        self.actions: Actions = cluster.actions.without(Event, "Lease")

    async def start(self, rpc: RpcClient | None = None, *, wait: float = 0.02) -> Manager:
        """Start a manager with the controller. ``rpc``: its client for the daemons; None: one without sockets."""
        return await self.cluster.start_manager(BitcoinNetworkController(rpc or self.daemons.direct_client(), wait=wait))

    async def quiet(self, seconds: float = 1.0) -> None:
        """Return when nothing has anything to do, and so many seconds of the fake clock have passed."""
        await consistently(one(self.client, ConfigMap, "nothing"), None, seconds=seconds)

    async def created(self, nodes: int = 3, *, secret: str = "", ready: int | None = None) -> BitcoinNetwork:
        """Create a network and its pods, and return it when its status shows them.

        Args:
            nodes: Number of nodes.
            secret: Name of its Secret.
            ready: Number of ready pods; None: all.
        """
        await self.client.create(network(nodes, secret=secret))
        await self.stateful_set()
        await self.pods(nodes, ready=ready)
        found = await self.status(lambda obj: obj.status.replicas == nodes)
        await self.quiet()
        return found

    async def stateful_set(self, name: str = NAME) -> StatefulSet:
        """Return the StatefulSet when it exists."""
        return await eventually(one(self.client, StatefulSet, f"{name}-sts"), lambda _: True)

    async def status(self, condition: Callable[[BitcoinNetwork], object]) -> BitcoinNetwork:
        """Return the network when it meets the condition."""
        return await eventually(one(self.client, BitcoinNetwork, NAME), condition, within=LONG)

    async def conditions(self) -> dict[str, tuple[str, str, str]]:
        """Return status, reason and message of each condition by its type."""
        found = await self.client.get(BitcoinNetwork, NAME)
        return {each.type: (each.status, each.reason, each.message) for each in found.status.conditions}

    async def events(self) -> list[tuple[str, str, str]]:
        """Return type, reason and message of each Event."""
        await self.quiet()
        return [(each.type or "", each.reason or "", each.message or "") async for each in self.client.list(Event)]

    async def pods(self, count: int, *, first: int = 0, ready: int | None = None) -> None:
        """Create pods as the StatefulSet controller does, with the statuses that a kubelet writes."""
        for ordinal in range(first, count):
            await self.pod(ordinal, ready=ready is None or ordinal < ready)

    async def pod(self, ordinal: int, *, ready: bool = True, ip: str = "", run: str = "1", foreign: bool = False) -> Pod:
        """Create a pod, or change the status of an existing one.

        Args:
            ordinal: Its ordinal.
            ready: Whether it is Ready.
            ip: Its address; empty: that of the ordinal.
            run: Run of its container, which changes when the container restarts.
            foreign: The pod has no owner.
        """
        stateful_set = await self.stateful_set()
        try:
            pod = await self.client.get(Pod, f"{STS}-{ordinal}")
        except NotFound:
            template = stateful_set.spec.template
            labels, annotations = dict(template.metadata.labels or {}), dict(template.metadata.annotations or {})
            meta = ObjectMeta(name=f"{STS}-{ordinal}", namespace="default", labels=labels, annotations=annotations)
            pod = Pod(metadata=meta, spec=template.spec)
            if not foreign:
                set_controller_reference(stateful_set, pod)
            pod = await self.client.create(pod)
        pod.status = PodStatus(
            phase="Running",
            pod_ip=ip or ip_of(ordinal),
            conditions=[PodCondition(type="Ready", status="True" if ready else "False")],
            container_statuses=[
                ContainerStatus(
                    name=pod.spec.containers[0].name,
                    image=pod.spec.containers[0].image or "",
                    image_id="",
                    ready=ready,
                    restart_count=0,
                    container_id=f"test://{run}",
                    state=ContainerState(running=ContainerStateRunning()),
                )
            ],
        )
        return await self.client.update_status(pod)

    async def secret(self, name: str = "rpc", **data: str) -> Secret:
        """Create a Secret, or replace its data."""
        try:
            found = await self.client.get(Secret, name)
        except NotFound:
            return await self.client.create(Secret(metadata=ObjectMeta(name=name, namespace="default"), string_data=data))
        found.data = {}
        found.string_data = data
        return await self.client.update(found)

    def expect_full(self, ordinals: Sequence[int]) -> None:
        """Assert that the daemons of these pods list each other and nothing else."""
        ips = [ip_of(ordinal) for ordinal in ordinals]
        assert self.daemons.lists(ips) == full(ips)

    async def meshed(self, nodes: int, *, within: float = LONG) -> BitcoinNetwork:
        """Return the network when so many nodes are connected."""
        return await eventually(one(self.client, BitcoinNetwork, NAME), meshed_with(nodes), within=within)


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    """Provide a stage for the block. Managers stop at its end."""
    clock = FakeClock()
    async with ScriptedDaemons() as daemons, own_server(clock) as cluster:
        await cluster.install(BitcoinNetwork)
        yield Stage(cluster, clock, daemons)


async def warnings_of(at: Stage) -> list[tuple[str, str]]:
    """Return reason and message of each Warning."""
    return [(reason, message) for kind, reason, message in await at.events() if kind == "Warning"]
