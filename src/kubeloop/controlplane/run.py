"""Runs the built-in controllers against an API server, as an ordinary client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from kubeloop.api.apps.v1 import Deployment, ReplicaSet
from kubeloop.api.core.v1 import ConfigMap, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount
from kubeloop.api.rbac.v1 import ClusterRole
from kubeloop.client import Client
from kubeloop.config import ClusterConfig
from kubeloop.controller import ControllerBase, Manager, Runnable
from kubeloop.controlplane.certificates import CertificateApprover, CertificateCleaner, CertificateSigner
from kubeloop.controlplane.deployment import DeploymentController
from kubeloop.controlplane.disruption import DisruptionController
from kubeloop.controlplane.garbage_collector import GarbageCollector
from kubeloop.controlplane.namespace import NamespaceController
from kubeloop.controlplane.node import Delay, SimulatedNodes
from kubeloop.controlplane.node_lifecycle import NodeLifecycleController
from kubeloop.controlplane.pod_gc import PodGarbageCollector
from kubeloop.controlplane.quota import QuotaController
from kubeloop.controlplane.replicaset import ReplicaSetController
from kubeloop.controlplane.scheduler import Scheduler
from kubeloop.controlplane.service_accounts import (
    ACCOUNT,
    ClusterRoleAggregator,
    RootCertificatePublisher,
    ServiceAccountController,
    TokenSecretController,
)
from kubeloop.controlplane.volume_binder import PersistentVolumeBinder
from kubeloop.controlplane.volumes import ClaimProtectionController, EphemeralVolumeController, VolumeProtectionController
from kubeloop.meta import NotFound
from kubeloop.pki import CertificateAuthority, SigningKey
from kubeloop.tasks import Supervisor
from kubeloop.transport import Transport
from kubeloop.transport.round_tripper import Sender

#: Timeout in seconds of each condition.
TIMEOUT = 120.0


async def wait_settled(client: Client, nodes: Iterable[str] = (), *, timeout: float = TIMEOUT) -> None:
    """Return when pods can be created in every namespace and scheduled, and the built-in roles are complete.

    Args:
        client: Of a cluster whose controllers run.
        nodes: Names of the nodes that must be ready and without taints.
        timeout: Seconds.

    Raises:
        DeadlineError: The cluster was not ready in time; the message names the missing parts.
    """
    namespaces = [one.metadata.name async for one in client.list(Namespace) if one.status.phase != "Terminating"]
    roles = [one.metadata.name async for one in client.list(ClusterRole) if one.aggregation_rule is not None]
    async with asyncio.TaskGroup() as waits:
        for namespace in namespaces:
            waits.create_task(wait_account(client, namespace, timeout=timeout))
        for node in nodes:
            waits.create_task(_wait_node(client, node, timeout))
        for role in roles:
            waits.create_task(_wait_role(client, role, timeout))


async def wait_account(client: Client, namespace: str, *, timeout: float = TIMEOUT) -> None:
    """Wait until a namespace has its ``default`` ServiceAccount, without which admission refuses pods; or until the namespace is gone."""
    try:
        await client.wait_for(ServiceAccount, ACCOUNT, bool, namespace=namespace, timeout=timeout)
    except NotFound:
        return


async def _wait_node(client: Client, name: str, timeout: float) -> None:
    await client.wait_for(Node, name, _takes_pods, timeout=timeout)


async def _wait_role(client: Client, name: str, timeout: float) -> None:
    await client.wait_for(ClusterRole, name, lambda role: bool(role.rules), timeout=timeout)


def _takes_pods(node: Node) -> bool:
    return not node.spec.taints and any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


_LOG = logging.getLogger("kubeloop.controlplane")


@dataclass(frozen=True, slots=True, repr=False)
class ClusterKeys:
    """The signing keys of a control plane: for certificates, and for tokens of service accounts. They never leave their process."""

    authority: CertificateAuthority
    tokens: SigningKey


def controllers(
    *,
    authority: str = "",
    keys: ClusterKeys | None = None,
    nodes: Iterable[str] = ("kubeloop-node",),
    pod_delay: Delay | float = 0.0,
) -> list[ControllerBase[Any] | Runnable]:
    """Return one instance of each controller.

    Args:
        authority: PEM to publish in every namespace. Empty: none.
        keys: The cluster's keys. None: nothing is signed.
        nodes: Names of simulated nodes. Empty: pods wait for real ones.
        pod_delay: Seconds that a pod takes to start, or a function that returns them.

    Returns:
        The controllers, for a ``Manager``.
    """
    names = tuple(nodes)
    result: list[ControllerBase[Any] | Runnable] = [
        ServiceAccountController(),
        NamespaceController(),
        ReplicaSetController(),
        DeploymentController(),
        DisruptionController(),
        ClusterRoleAggregator(),
        QuotaController(),
        CertificateApprover(),
        CertificateCleaner(),
        Scheduler(),
        NodeLifecycleController(),
        PodGarbageCollector(),
        ClaimProtectionController(),
        VolumeProtectionController(),
        EphemeralVolumeController(),
        PersistentVolumeBinder(),
        GarbageCollector(
            [ConfigMap, Deployment, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicaSet, ServiceAccount]
        ),
    ]
    if authority:
        result.insert(1, RootCertificatePublisher(authority))
    if keys is not None:
        result += [CertificateSigner(keys.authority), TokenSecretController(authority, keys.tokens)]
    if names:
        result.append(SimulatedNodes(names, pod_delay))
    return result


async def run(
    config: ClusterConfig,
    *,
    sender: Sender | None = None,
    keys: ClusterKeys | None = None,
    nodes: Iterable[str] = ("kubeloop-node",),
    pod_delay: Delay | float = 0.0,
    grace: float | None = 5.0,
    ready: Callable[[Manager], None] | None = None,
    settled: Callable[[], None] | None = None,
) -> None:
    """Run all built-in controllers until the call is cancelled, and then stop them gracefully within ``grace`` seconds.

    The caller handles signals.

    Args:
        config: How to reach the API server.
        sender: Carries requests to a server in this process; None: requests go over connections.
        keys: The keys of the cluster. None: certificates and tokens are not signed.
        nodes: Names of the simulated nodes.
        pod_delay: Seconds that a pod takes to start.
        grace: Seconds for a graceful stop; None: no limit.
        ready: Called once, when all caches are synced and all controllers work.
        settled: Called once, after their first work (see ``wait_settled``).

    Raises:
        KubeloopError: The server does not let a controller work: credentials, certificate, permissions.
    """
    async with Client(Transport(config, sender=sender)) as client:
        authority = config.ca.read().decode("ascii") if config.ca is not None else ""
        chosen = controllers(authority=authority, keys=keys, nodes=nodes, pod_delay=pod_delay)
        async with Manager(client, chosen, grace=grace) as manager:
            if ready is not None:
                ready(manager)
            async with Supervisor(client.clock, _LOG) as tasks:
                if settled is not None:
                    tasks.start(partial(_report, client, tuple(nodes), settled), name="settling")
                await manager.wait()


async def _report(client: Client, nodes: tuple[str, ...], settled: Callable[[], None]) -> None:
    await wait_settled(client, nodes)
    settled()
