"""Templates of simulated nodes: names, labels, taints, capacity, usage and failures, and the Node objects and Leases from them. No I/O.

Source: Kubernetes pkg/kubelet/kubelet_node_status.go, pkg/kubelet/nodestatus/setters.go; component-helpers apimachinery/lease.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from kubeloop.controlplane.simulation.annotations import PREFIX
from kubeloop.controlplane.simulation.usage import UsageFunction
from kubeloop.meta import ConfigError, format_time
from kubeloop.types import JSONObject
from kubeloop.version import VERSION

NODE: Final = "kubeloop-node"
LEASES: Final = "kube-node-lease"
#: The annotation of a Node whose value ``stopped`` stops its simulated kubelet.
KUBELET: Final = f"{PREFIX}kubelet"
CAPACITY: Final[Mapping[str, str]] = {"cpu": "64", "memory": "256Gi", "pods": "10000", "ephemeral-storage": "1Ti"}
#: Seconds for which a Lease is valid (the kubelet's nodeLeaseDurationSeconds), and between two renewals.
_LEASE_SECONDS = 40
_RENEWAL = 10.0
#: Seconds between two renewals of a Lease in a large cluster: two renewals fit into the grace period of the node lifecycle controller.
_SLOW_RENEWAL = 24.0
_MANY_NODES = 100
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")

_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "simulated by kubeloop: pods run without containers"),
)


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """A period in which a simulated kubelet does nothing: it begins ``after`` seconds after the start and lasts ``seconds``."""

    after: float
    seconds: float

    def covers(self, elapsed: float) -> bool:
        return self.after <= elapsed < self.after + self.seconds


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """The properties of one simulated node.

    Args:
        name: The node's name.
        labels: Labels in addition to those of every node, such as zones and instance types.
        capacity: Amounts by resource that differ from ``CAPACITY``.
        taints: Taints as in ``spec.taints``.
        usage: Usage of ``cpu`` and ``memory`` in addition to that of the pods.
        failures: Periods in which the kubelet does nothing.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    usage: Mapping[str, UsageFunction] = field(default_factory=dict)
    failures: Sequence[NodeFailure] = ()

    def fails(self, elapsed: float) -> bool:
        """Return whether the kubelet does nothing ``elapsed`` seconds after its start."""
        return any(one.covers(elapsed) for one in self.failures)

    def node(self, address: str, now: datetime) -> JSONObject:
        """Return the Node that the kubelet registers, with its status.

        Args:
            address: The internal IP address.
            now: The time of the conditions.
        """
        standard = {"hostname": self.name, "os": "linux", "arch": "amd64"}
        labels = {f"kubernetes.io/{key}": value for key, value in standard.items()}
        beta = {f"beta.kubernetes.io/{key}": standard[key] for key in ("arch", "os")}
        room = {**CAPACITY, **self.capacity}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": {**labels, **beta, **self.labels}},
            "spec": {"taints": [dict(one) for one in self.taints]} if self.taints else {},
            "status": {
                "capacity": room,
                "allocatable": room,
                "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": self.name}],
                "conditions": conditions(now),
                "nodeInfo": {
                    "architecture": "amd64",
                    "bootID": "kubeloop",
                    "containerRuntimeVersion": f"kubeloop://{VERSION}",
                    "kernelVersion": "simulated",
                    "kubeProxyVersion": "",
                    "kubeletVersion": f"v1.36.0-kubeloop-{VERSION}",
                    "machineID": "kubeloop",
                    "operatingSystem": "linux",
                    "osImage": "kubeloop simulated node",
                    "systemUUID": "kubeloop",
                },
            },
        }


def conditions(now: datetime, before: Iterable[JSONObject] = ()) -> list[JSONObject]:
    """Return the conditions of a healthy node.

    Args:
        now: The time of the heartbeat.
        before: The present conditions; conditions with unchanged status keep their transition time.
    """
    known = {one["type"]: one for one in before}
    moment = format_time(now.replace(microsecond=0))
    result = []
    for kind, status, reason, message in _CONDITIONS:
        same = (known.get(kind) or {}).get("status") == status
        since = known[kind].get("lastTransitionTime") if same else None
        times = {"lastHeartbeatTime": moment, "lastTransitionTime": since or moment}
        result.append({"type": kind, "status": status, "reason": reason, "message": message} | times)
    return result


def lease(name: str, uid: str, now: datetime) -> JSONObject:
    """Return the Lease of a node's kubelet.

    Args:
        name: The node's name.
        uid: The uid of the Node, which owns the Lease.
        now: The time of the renewal.
    """
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASES, "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": micro_time(now)},
    }


def micro_time(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def renewal_plan(nodes: int, elapsed: float = 0.0) -> tuple[float, int]:
    """Return how to renew Leases: the seconds between the starts of two batches, and the number of nodes of the next batch.

    In a small cluster all Leases are renewed every ten seconds, as kubelets do. In a large one they are renewed less often, a part of them
    each second, so that no batch delays other work.

    Args:
        nodes: The number of nodes.
        elapsed: Seconds since the last batch began. A late batch is larger.
    """
    if nodes <= _MANY_NODES:
        return _RENEWAL, max(nodes, 1)
    return 1.0, min(math.ceil(nodes * max(elapsed, 1.0) / _SLOW_RENEWAL), nodes)


def address_of(number: int) -> str:
    """Return the internal IP address, in 10.0.0.0/16, of the simulated node with an index."""
    return f"10.0.{number // 240}.{number % 240 + 10}"


def node_names(text: str) -> tuple[str, ...]:
    """Return the names of simulated nodes from a text: a number of nodes, or names separated by commas.

    A single node is called ``kubeloop-node``; several are called ``kubeloop-node-0`` and so on.

    Raises:
        ConfigError: The number is above 20000, or a name is no valid name of a Node or occurs twice.
    """
    text = text.strip()
    if text.isdigit():
        count = int(text)
        if count > 20_000:
            raise ConfigError(f"{count} simulated nodes are too many; 20000 at most")
        return (NODE,) if count == 1 else tuple(f"{NODE}-{number}" for number in range(count))
    names = tuple(one.strip() for one in text.split(","))
    for name in names:
        if not _DNS_LABEL.fullmatch(name) or len(name) > 253:
            raise ConfigError(f'"{name}" is not a valid name of a Node; give a number of nodes, or names such as worker-a,worker-b')
    if len(set(names)) != len(names):
        raise ConfigError(f"a node name occurs twice in {text}")
    return names
