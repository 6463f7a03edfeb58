"""Runs the built-in controllers against an API server, as an ordinary client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial

from kubeloop.api.core.v1 import Namespace, Node, ServiceAccount
from kubeloop.api.rbac.v1 import ClusterRole
from kubeloop.client import Client
from kubeloop.config import ClusterConfig
from kubeloop.controller import Background, Endpoints, Manager
from kubeloop.controlplane.accounts.service_accounts import ACCOUNT
from kubeloop.controlplane.catalogue import AnyController, ClusterKeys, ClusterTrust, create_controllers, select_controllers
from kubeloop.controlplane.leader_election import ControlPlaneLeases, ElectedRunnable
from kubeloop.controlplane.scheduling.configuration import SchedulerConfiguration
from kubeloop.controlplane.scheduling.scheduler import SCHEDULER, Scheduler
from kubeloop.controlplane.simulation.node_templates import NODE, NodeTemplate
from kubeloop.controlplane.simulation.nodes import Delay, SimulatedNodes
from kubeloop.controlplane.simulation.rules import SimulationRules
from kubeloop.meta import NotFound
from kubeloop.tasks import Supervisor
from kubeloop.transport import ServerWarning, Transport, once_each
from kubeloop.transport.round_tripper import Sender

#: Default timeout in seconds of each wait.
TIMEOUT = 120.0


async def wait_settled(
    client: Client, nodes: Iterable[str] = (), *, controllers: Collection[str] | None = None, timeout: float = TIMEOUT
) -> None:
    """Wait until pods can be created in every namespace and scheduled, and the aggregated cluster roles have rules.

    Args:
        client: A client of a cluster whose controllers run.
        nodes: Names of the nodes that must be ready and without taints.
        controllers: Names of the controllers that run; results of other controllers are not awaited. None: all.
        timeout: Maximum seconds of each wait.

    Raises:
        DeadlineError: The cluster was not ready in time; the message names the missing parts.
    """
    namespaces: list[str] = []
    roles: list[str] = []
    if controllers is None or "serviceaccount-controller" in controllers:
        namespaces = [one.metadata.name async for one in client.list(Namespace) if one.status.phase != "Terminating"]
    if controllers is None or "clusterrole-aggregation-controller" in controllers:
        roles = [one.metadata.name async for one in client.list(ClusterRole) if one.aggregation_rule is not None]
    async with asyncio.TaskGroup() as waits:
        for namespace in namespaces:
            waits.create_task(wait_account(client, namespace, timeout=timeout))
        waits.create_task(_wait_nodes(client, frozenset(nodes), timeout))
        for role in roles:
            waits.create_task(_wait_role(client, role, timeout))


async def wait_account(client: Client, namespace: str, *, timeout: float = TIMEOUT) -> None:
    """Wait until a namespace has its ``default`` ServiceAccount, without which admission refuses pods, or the namespace is deleted."""
    try:
        await client.wait_for(ServiceAccount, ACCOUNT, bool, namespace=namespace, timeout=timeout)
    except NotFound:
        return


async def _wait_nodes(client: Client, names: frozenset[str], timeout: float) -> None:
    """Wait until nodes are ready and without taints. It lists nodes, and watches one between lists: a watch per node is expensive."""
    while names:
        names -= {node.metadata.name async for node in client.list(Node) if _takes_pods(node)}
        if names:
            await client.wait_for(Node, max(names), _takes_pods, timeout=timeout)


async def _wait_role(client: Client, name: str, timeout: float) -> None:
    await client.wait_for(ClusterRole, name, lambda role: bool(role.rules), timeout=timeout)


def _takes_pods(node: Node) -> bool:
    tainted = any(taint.key.startswith("node.kubernetes.io/") for taint in node.spec.taints)
    return not tainted and any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


_LOG = logging.getLogger("kubeloop.controlplane")


def controllers(
    *,
    authority: str = "",
    keys: ClusterKeys | None = None,
    nodes: Iterable[str | NodeTemplate] = (NODE,),
    rules: SimulationRules | None = None,
    pod_delay: Delay | float = 0.0,
    metrics: bool = False,
    selection: str | None = "*",
    scheduler: SchedulerConfiguration | None = None,
) -> list[AnyController]:
    """Create the selected controllers, including the scheduler, and the simulated nodes.

    Args:
        authority: CA certificate in PEM to publish in every namespace. Empty: none.
        keys: The cluster's keys. None: nothing is signed.
        nodes: Names or templates of simulated nodes. Empty: no nodes are simulated, and pods wait for real nodes.
        rules: Rules for the behaviour of simulated pods without annotations.
        pod_delay: Seconds that a simulated pod takes to start, or a function that returns them.
        metrics: Whether to serve metrics.k8s.io: the usage of simulated nodes and pods or, without simulated nodes, that of kubelets.
        selection: The controllers, in the format of ``--controllers``; see ``select_controllers``. None: only the simulated nodes run.
        scheduler: The configuration of the scheduler; None: the default one.

    Returns:
        The controllers, for a ``Manager``.

    Raises:
        ConfigError: The selection names an unknown controller.
    """
    simulated_nodes = tuple(nodes)
    simulated: list[AnyController] = []
    if simulated_nodes:
        kubelets = SimulatedNodes(simulated_nodes, pod_delay, rules)
        simulated.append(kubelets)
        if metrics:
            from kubeloop.controlplane.metrics.server import MetricsServer
            from kubeloop.controlplane.simulation.metrics import SimulatedUsage

            simulated.append(Background(MetricsServer(SimulatedUsage(kubelets)), name="metrics-server", needs_leader=False))
    elif metrics:
        from kubeloop.controlplane.metrics.kubelet_usage import KubeletUsage
        from kubeloop.controlplane.metrics.server import MetricsServer

        simulated.append(Background(MetricsServer(KubeletUsage()), name="metrics-server", needs_leader=False))
    return create_controllers(_selected(selection), ClusterTrust(authority, keys or ClusterKeys()), simulated, scheduler)


def _selected(selection: str | None) -> frozenset[str]:
    return select_controllers(selection) if selection is not None else frozenset()


async def run(
    config: ClusterConfig,
    *,
    sender: Sender | None = None,
    keys: ClusterKeys | None = None,
    authority: str | None = None,
    nodes: Iterable[str | NodeTemplate] = (NODE,),
    rules: SimulationRules | None = None,
    pod_delay: Delay | float = 0.0,
    metrics: bool = False,
    selection: str | None = "*",
    scheduler: SchedulerConfiguration | None = None,
    leases: ControlPlaneLeases | None = None,
    endpoints: Endpoints | None = None,
    grace: float | None = 5.0,
    ready: Callable[[Manager], None] | None = None,
    settled: Callable[[], None] | None = None,
) -> None:
    """Run the built-in controllers until the call is cancelled, and then stop them gracefully within ``grace`` seconds.

    The caller handles signals.

    Args:
        config: How to reach the API server.
        sender: Sends requests to a server in this process; None: requests are sent over connections.
        keys: The keys of the cluster. None: certificates and tokens are not signed.
        authority: CA certificate in PEM to publish in every namespace. None: that of ``config``; empty: none.
        nodes: Names or templates of the simulated nodes.
        rules: Rules for the behaviour of simulated pods without annotations.
        pod_delay: Seconds that a simulated pod takes to start, or a function that returns them.
        metrics: Whether to serve metrics.k8s.io: the usage of simulated nodes and pods or, without simulated nodes, that of kubelets.
        selection: The controllers, in the format of ``--controllers``; see ``select_controllers``. None: only the simulated nodes run.
        scheduler: The configuration of the scheduler; None: the default one.
        leases: The Leases that the controllers and the scheduler hold while they work. None: they work without an election. Simulated nodes
            take no part in it.
        endpoints: Where to serve health and metrics. None: nowhere.
        grace: Seconds for a graceful stop; None: no limit.
        ready: Called once, when all caches are synced and all controllers work; with an election, when the controllers lead, or, if only
            the scheduler is selected, when it leads.
        settled: Called once, when the controllers have done their first work (see ``wait_settled``).

    Raises:
        ConfigError: The selection names an unknown controller.
        LeaseLost: Another replica leads, or the Lease could not be renewed in time.
        KubeloopError: The server does not let a controller work: credentials, certificate, permissions.
    """
    async with Client(Transport(config, sender=sender, warning_handler=once_each(_log_warning))) as client:
        if authority is None:
            authority = config.ca.read().decode("ascii") if config.ca is not None else ""
        templates = [NodeTemplate(one) if isinstance(one, str) else one for one in nodes]
        selected = controllers(
            authority=authority,
            keys=keys,
            nodes=templates,
            rules=rules,
            pod_delay=pod_delay,
            metrics=metrics,
            selection=selection,
            scheduler=scheduler,
        )
        election = None
        scheduler_election = None
        if leases is not None:
            for index, controller in enumerate(selected):
                if isinstance(controller, Scheduler):
                    selected[index] = scheduler_election = ElectedRunnable(controller, leases.scheduler)
            if _selected(selection) - {SCHEDULER}:
                election = leases.controllers
        async with (
            Manager(client, selected, leader_election=election, endpoints=endpoints, grace=grace) as manager,
            Supervisor(client.clock, _LOG) as tasks,
        ):
            if ready is not None:
                awaited = scheduler_election if election is None else None
                tasks.start(partial(_announce, manager, awaited, ready), name="announcing")
            if settled is not None:
                tasks.start(partial(_report, client, tuple(one.name for one in templates), _selected(selection), settled), name="settling")
            await manager.wait()


async def _announce(manager: Manager, scheduler: ElectedRunnable | None, ready: Callable[[Manager], None]) -> None:
    await manager.wait_leading()
    if scheduler is not None:
        await scheduler.wait_leading()
    ready(manager)


def _log_warning(warning: ServerWarning) -> None:
    # The controllers of Services use Endpoints on purpose: a warning about their deprecation does not help the operator.
    if not warning.text.startswith("v1 Endpoints is deprecated"):
        _LOG.warning("the server warns: %s", warning.text)


async def _report(client: Client, nodes: tuple[str, ...], controllers: Collection[str], settled: Callable[[], None]) -> None:
    await wait_settled(client, nodes, controllers=controllers)
    settled()
