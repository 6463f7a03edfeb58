"""The admission of pods by the kubelet: it rejects a pod that needs a host port of another pod of the node.

The scheduler places no such pod; a pod with ``nodeName`` comes here without it. Resources and affinity are not checked.

Source: Kubernetes pkg/kubelet/lifecycle/predicate.go; k8s.io/kubernetes pkg/scheduler/framework/plugins/nodeports (Fits).
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.types import JSONObject

#: Reason and message of a pod whose host ports are in use.
PORT_CONFLICT = ("NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports")
_ANY = ("", "0.0.0.0", "::")  # noqa: S104 - not listened on


def has_port_conflict(pod: JSONObject, others: Iterable[JSONObject]) -> bool:
    """Return whether a host port of a pod is one of another pod that has not ended: the same number, protocol and address.

    Args:
        pod: The pod.
        others: The other pods of the node.
    """
    ports = _host_ports(pod)
    running = [other for other in others if (other.get("status") or {}).get("phase") not in ("Succeeded", "Failed")] if ports else []
    return any(_collide(port, taken) for other in running for taken in _host_ports(other) for port in ports)


def _host_ports(pod: JSONObject) -> list[tuple[int, str, str]]:
    spec = pod["spec"]
    sidecars = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    return [
        (port["hostPort"], port.get("protocol") or "TCP", port.get("hostIP") or "")
        for container in (*sidecars, *spec["containers"])
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def _collide(one: tuple[int, str, str], other: tuple[int, str, str]) -> bool:
    return one[:2] == other[:2] and (one[2] == other[2] or one[2] in _ANY or other[2] in _ANY)
