"""The Node object of a kubelet: its facts about this machine, its registration, and its heartbeats.

Source: Kubernetes pkg/kubelet/kubelet_node_status.go, nodestatus/setters.go; k8s.io/component-helpers apimachinery/lease.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kubeloop.api.coordination.v1 import Lease, LeaseSpec
from kubeloop.api.core.v1 import Node
from kubeloop.client import Client
from kubeloop.codec import to_dict
from kubeloop.meta import AlreadyExists, Conflict, KubeloopError, NotFound, ObjectMeta, OwnerReference
from kubeloop.meta.time import format_time
from kubeloop.types import JSONObject
from kubeloop.version import VERSION

_LOG = logging.getLogger("kubeloop.kubelet")
#: Seconds for which a Lease is valid, between two renewals, and between two writes of an unchanged status.
LEASE_SECONDS, HEARTBEAT, REPORT = 40, 10.0, 300.0
_NAMESPACE = "kube-node-lease"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_MAX_PODS = 110
#: The ``containerRuntimeVersion`` of nodes whose containers are processes.
RUNTIME = f"process://{VERSION}"


@dataclass(frozen=True)
class MachineFacts:
    """Properties of this machine that the status of a Node reports; ``memory`` and ``storage`` are in bytes."""

    cpus: int
    memory: int
    storage: int
    kernel: str
    os_image: str
    machine_id: str
    boot_id: str
    architecture: str
    hostname: str = ""

    @classmethod
    def read(cls, folder: Path, name: str, address: str) -> MachineFacts:
        """Return the properties of this machine, from /proc, /etc and the size of a file system.

        Args:
            folder: A folder on the file system to which pods write; it is created.
            name: The node's name, which becomes the host name if it can be resolved.
            address: The node's address, which otherwise becomes the host name.
        """
        memory = next((line.split()[1] for line in _text("/proc/meminfo").splitlines() if line.startswith("MemTotal:")), "0")
        release = dict(line.split("=", 1) for line in _text("/etc/os-release").splitlines() if "=" in line)
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        return cls(
            os.cpu_count() or 1,
            int(memory) * 1024,
            shutil.disk_usage(folder).total,
            platform.release(),
            release.get("PRETTY_NAME", platform.system()).strip('"'),
            _text("/etc/machine-id").strip(),
            _text("/proc/sys/kernel/random/boot_id").strip(),
            _MACHINES.get(platform.machine(), platform.machine()),
            name if _resolves(name) else address,
        )


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except OSError:
        return False


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def allocatable(facts: MachineFacts) -> dict[str, str]:
    """Return the resources that pods of the node may request."""
    return {
        "cpu": str(facts.cpus),
        "memory": f"{facts.memory // 1024}Ki",
        "ephemeral-storage": f"{facts.storage // 1024}Ki",
        "pods": str(_MAX_PODS),
    }


def node_labels(name: str, facts: MachineFacts, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that a kubelet sets on its Node.

    Args:
        name: The node's name.
        facts: The properties of the machine.
        labels: Additional labels (``--node-labels``), which take precedence.
    """
    own = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": facts.architecture}
    return {**own, "beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": facts.architecture, **labels}


def node_status(stored: JSONObject, facts: MachineFacts, address: str, port: int, now: datetime) -> JSONObject:
    """Return the status to write for a node.

    Args:
        stored: The stored status, whose transition times stay for conditions that do not change.
        facts: The properties of the machine.
        address: The node's IP address.
        port: The port of the kubelet's endpoint.
        now: The present time.
    """
    room = allocatable(facts)
    known = {one["type"]: one for one in stored.get("conditions") or ()}
    moment = format_time(now.replace(microsecond=0))
    conditions = []
    for kind, state, reason, message in _CONDITIONS:
        before = known.get(kind) or {}
        since = before.get("lastTransitionTime") if before.get("status") == state else None
        conditions.append(
            {
                "type": kind,
                "status": state,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": moment,
                "lastTransitionTime": since or moment,
            }
        )
    return {
        "capacity": room,
        "allocatable": dict(room),
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": facts.hostname}],
        "conditions": conditions,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            "architecture": facts.architecture,
            "bootID": facts.boot_id,
            "containerRuntimeVersion": RUNTIME,
            "kernelVersion": facts.kernel,
            "kubeProxyVersion": "",
            "kubeletVersion": f"v1.36.0-kubeloop-{VERSION}",
            "machineID": facts.machine_id,
            "operatingSystem": "linux",
            "osImage": facts.os_image,
            "systemUUID": facts.machine_id,
        },
    }


_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)


class NodeRegistration:
    """Registers a node, writes its status, and renews its Lease.

    Args:
        client: A client with the node's credentials.
        name: The node's name.
        facts: The properties of the machine.
        address: The node's IP address.
        port: Returns the port of the kubelet's endpoint.
        labels: Labels in addition to the usual ones.
    """

    def __init__(
        self, client: Client, name: str, facts: MachineFacts, address: str, port: Callable[[], int], labels: Mapping[str, str]
    ) -> None:
        self._client = client
        self._name = name
        self._facts = facts
        self._address = address
        self._port = port
        self._labels = node_labels(name, facts, labels)
        self._uid = ""

    async def register(self) -> Node:
        """Create the Node, or add the labels to an existing one, and write its status."""
        node = Node.from_dict({"metadata": {"name": self._name, "labels": self._labels}})
        try:
            stored = await self._client.create(node)
        except AlreadyExists:
            stored = await self._client.get(Node, self._name)
            if any(stored.metadata.labels.get(name) != value for name, value in self._labels.items()):
                change = {"metadata": {"labels": self._labels}}
                stored = await self._client.patch(Node, self._name, change, type="strategic")
        self._uid = stored.metadata.uid
        await self._report(stored)
        return stored

    async def _report(self, stored: Node) -> None:
        before = to_dict(stored).get("status") or {}
        status = node_status(before, self._facts, self._address, self._port(), self._client.clock.wall())
        await self._client.patch(Node, self._name, {"status": status}, type="strategic", subresource="status")

    async def heartbeat(self) -> None:
        """Renew the Lease and write the status until the call is cancelled, log errors, and register a deleted Node again."""
        clock, reported = self._client.clock, self._client.clock.now()
        while True:
            try:
                await self._renew()
                if clock.now() - reported >= REPORT:
                    await self._report(await self._client.get(Node, self._name))
                    reported = clock.now()
                else:
                    stored = await self._client.get(Node, self._name)
                    if not _is_ready(stored):
                        await self._report(stored)
            except NotFound:
                _LOG.warning("node %s was deleted; registering it again", self._name)
                with contextlib.suppress(KubeloopError):
                    await self.register()
            except KubeloopError as error:
                _LOG.warning("node %s: heartbeat failed: %s", self._name, error)
            await clock.sleep(HEARTBEAT)

    async def _renew(self) -> None:
        now = self._client.clock.wall()
        try:
            lease = await self._client.get(Lease, self._name, namespace=_NAMESPACE)
        except NotFound:
            owner = OwnerReference(api_version="v1", kind="Node", name=self._name, uid=self._uid)
            metadata = ObjectMeta(name=self._name, namespace=_NAMESPACE, owner_references=[owner])
            spec = LeaseSpec(holder_identity=self._name, lease_duration_seconds=LEASE_SECONDS, renew_time=now)
            with contextlib.suppress(AlreadyExists):
                await self._client.create(Lease(metadata=metadata, spec=spec))
            return
        lease.spec.holder_identity, lease.spec.lease_duration_seconds, lease.spec.renew_time = self._name, LEASE_SECONDS, now
        with contextlib.suppress(Conflict):
            await self._client.update(lease)


def _is_ready(node: Node) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)
