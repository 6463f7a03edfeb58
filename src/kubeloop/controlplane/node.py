"""Simulated nodes: pods bound to them become Running and Ready without any container, and go when they are deleted.

They are honest about it: the node's ``nodeInfo`` names kubeloop, and container ids begin with ``kubeloop://``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from kubeloop.api.core.v1 import Node, NodeAddress, NodeCondition, NodeSystemInfo, Pod
from kubeloop.client import DeleteOptions
from kubeloop.controller import Controller, Predicate, Result
from kubeloop.controlplane.pod_status import running_status, starting_status
from kubeloop.meta import AlreadyExists, Conflict, Invalid, NotFound, ObjectMeta, Quantity
from kubeloop.meta.version import VERSION

#: Seconds that a pod takes from being bound to running, by pod.
Delay = Callable[[Pod], float]

_bound = Predicate(lambda event: bool(event.head.value("spec.nodeName")), ("spec.nodeName",))


class SimulatedNodes(Controller[Pod], predicates=[_bound], workers=10, name="kubelet"):
    """Plays the kubelet of each node named in ``nodes``: creates the Node objects, runs their pods, ends them.

    ``delay`` lets a pod start slowly; a pod is first shown as ContainerCreating then. Pod addresses are of 10.244.0.0/16, each used by
    one pod at a time; nothing listens there.
    """

    def __init__(self, nodes: Iterable[str] = ("kubeloop-node",), delay: Delay | float = 0.0) -> None:
        self.nodes = {name: f"10.0.0.{number + 10}" for number, name in enumerate(nodes)}
        self._delay: Delay = delay if callable(delay) else _always(delay)

    async def start(self) -> None:
        self._addresses: dict[str, str] = {}
        for pod in self.lister(Pod).each():
            if pod.status.pod_ip:
                self._addresses[pod.metadata.uid] = pod.status.pod_ip
        self._numbers = itertools.cycle(range(1, 254 * 254))
        for name, address in self.nodes.items():
            await self._register(name, address)

    async def reconcile(self, pod: Pod) -> Result | None:
        host = self.nodes.get(pod.spec.node_name or "")
        if host is None:
            return None
        if pod.metadata.deletion_timestamp is not None:
            await self._end(pod)
            return None
        if pod.status.phase in ("Succeeded", "Failed", "Running") and not pod.spec.readiness_gates:
            return None
        now = self.clock.wall()
        if pod.status.phase != "Running":
            wanted = self._delay(pod)
            waited = (now - pod.status.start_time).total_seconds() if pod.status.start_time else None
            if waited is None and wanted > 0:
                await self._write(pod, starting_status(pod, host, now))
                return Result(requeue_after=wanted)
            if waited is not None and waited < wanted:
                return Result(requeue_after=wanted - waited)
        status = running_status(pod, host, self._address(pod), now)
        if pod.status.phase != "Running":
            await self._write(pod, status)
            for container in pod.spec.containers:
                self.events.normal(pod, "Started", f"Started container {container.name}")
        elif _ready(status) != next((one.status for one in pod.status.conditions if one.type == "Ready"), None):
            await self._write(pod, {"conditions": status["conditions"]})
        return None

    async def _end(self, pod: Pod) -> None:
        """There is nothing to terminate: confirm the deletion, as a kubelet does when the last container has ended."""
        self._addresses.pop(pod.metadata.uid, None)
        try:
            await self.client.delete(pod, grace_period=0, options=DeleteOptions(uid=pod.metadata.uid))
        except (NotFound, Conflict):
            pass
        else:
            for container in pod.spec.containers:
                self.events.normal(pod, "Killing", f"Stopping container {container.name}")

    async def _write(self, pod: Pod, status: dict[str, Any]) -> None:
        change = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        metadata = pod.metadata
        try:
            await self.client.patch(Pod, metadata.name, change, type="strategic", namespace=metadata.namespace, subresource="status")
        except NotFound:
            return
        except (Conflict, Invalid):
            # The uid is a precondition: the pod is another one by now, which its own event brings here.
            live = await self.client.get_metadata(Pod, metadata.name, namespace=metadata.namespace)
            if live.metadata.uid == metadata.uid:
                raise

    def _address(self, pod: Pod) -> str:
        address = self._addresses.get(pod.metadata.uid)
        if address is None:
            used = set(self._addresses.values())
            address = next(one for number in self._numbers if (one := f"10.244.{number // 254}.{number % 254 + 1}") not in used)
            self._addresses[pod.metadata.uid] = address
        return address

    async def _register(self, name: str, address: str) -> None:
        now = self.clock.wall().replace(microsecond=0)
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        node = Node(metadata=ObjectMeta(name=name, labels=labels))
        try:
            node = await self.client.create(node)
        except AlreadyExists:
            node = await self.client.get(Node, name)
        room = {"cpu": Quantity("64"), "memory": Quantity("256Gi"), "pods": Quantity("10000"), "ephemeral-storage": Quantity("1Ti")}
        node.status.capacity = room
        node.status.allocatable = dict(room)
        node.status.addresses = [NodeAddress(type="InternalIP", address=address), NodeAddress(type="Hostname", address=name)]
        node.status.conditions = [_condition(kind, state, reason, message, now) for kind, state, reason, message in _CONDITIONS]
        node.status.node_info = NodeSystemInfo(
            architecture="amd64",
            boot_id="kubeloop",
            container_runtime_version=f"kubeloop://{VERSION}",
            kernel_version="simulated",
            kube_proxy_version="",
            kubelet_version=f"v1.36.0-kubeloop-{VERSION}",
            machine_id="kubeloop",
            operating_system="linux",
            os_image="kubeloop simulated node",
            system_uuid="kubeloop",
        )
        node = await self.client.update_status(node)
        # A new node is tainted by the server's admission until it is ready; upstream's node lifecycle controller takes that off.
        kept = [taint for taint in node.spec.taints if taint.key != _NOT_READY]
        if len(kept) != len(node.spec.taints):
            node.spec.taints = kept
            await self.client.update(node)


_NOT_READY = "node.kubernetes.io/not-ready"
_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "simulated by kubeloop: pods run without containers"),
)


def _condition(kind: str, state: str, reason: str, message: str, now: datetime) -> NodeCondition:
    return NodeCondition(type=kind, status=state, reason=reason, message=message, last_heartbeat_time=now, last_transition_time=now)


def _ready(status: dict[str, Any]) -> str:
    return str(next(one["status"] for one in status["conditions"] if one["type"] == "Ready"))


def _always(seconds: float) -> Delay:
    return lambda pod: seconds  # noqa: ARG005  # the same for every pod
