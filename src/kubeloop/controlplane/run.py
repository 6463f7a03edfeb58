"""Runs the built-in controllers against an API server, as an ordinary client of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kubeloop.api.apps.v1 import Deployment, ReplicaSet
from kubeloop.api.core.v1 import ConfigMap, Namespace, Node, Pod, ServiceAccount
from kubeloop.client import Client
from kubeloop.config import ClusterConfig
from kubeloop.controller import ControllerBase, Manager, Runnable
from kubeloop.controlplane.deployment import DeploymentController
from kubeloop.controlplane.garbage_collector import GarbageCollector
from kubeloop.controlplane.namespace import NamespaceController
from kubeloop.controlplane.node import Delay, SimulatedNodes
from kubeloop.controlplane.replicaset import ReplicaSetController
from kubeloop.controlplane.scheduler import Scheduler
from kubeloop.controlplane.service_account import RootCertificatePublisher, ServiceAccountController
from kubeloop.transport import Transport


def controllers(
    *, authority: str = "", nodes: Iterable[str] = ("kubeloop-node",), pod_delay: Delay | float = 0.0
) -> list[ControllerBase[Any] | Runnable]:
    """One of each. Without ``authority`` (PEM) none is published; without ``nodes`` pods wait for real ones."""
    names = tuple(nodes)
    found: list[ControllerBase[Any] | Runnable] = [
        ServiceAccountController(),
        NamespaceController(),
        ReplicaSetController(),
        DeploymentController(),
        Scheduler(),
        GarbageCollector([ConfigMap, Deployment, Namespace, Node, Pod, ReplicaSet, ServiceAccount]),
    ]
    if authority:
        found.insert(1, RootCertificatePublisher(authority))
    if names:
        found.append(SimulatedNodes(names, pod_delay))
    return found


async def run(
    config: ClusterConfig,
    *,
    nodes: Iterable[str] = ("kubeloop-node",),
    pod_delay: Delay | float = 0.0,
    grace: float | None = 5.0,
    ready: Callable[[Manager], None] | None = None,
) -> None:
    """Run all built-in controllers until cancelled; then stop them gracefully, in ``grace`` seconds at most.

    ``ready`` is called once, when all caches are synced and all controllers work. Signals are the caller's.

    Raises:
        KubeloopError: the server does not let a controller work: credentials, certificate, permissions.
    """
    async with Client(Transport(config)) as client:
        authority = config.ca.read().decode("ascii") if config.ca is not None else ""
        async with Manager(client, controllers(authority=authority, nodes=nodes, pod_delay=pod_delay), grace=grace) as manager:
            if ready is not None:
                ready(manager)
            await manager.wait()
