"""The status that a simulated kubelet gives a pod: starting, or running and ready. No I/O.

Source: what a real kubelet writes (Kubernetes pkg/kubelet/status, kubelet_pods.go); documentation, "Pod Lifecycle".
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any

from kubeloop.api.core.v1 import Container, Pod
from kubeloop.meta import format_time

JSONObject = dict[str, Any]


def running_status(pod: Pod, host_ip: str, pod_ip: str, now: datetime) -> JSONObject:
    """All containers run and are ready; the pod is ready unless a readiness gate of its own holds it back."""
    gates = {condition.type for condition in pod.status.conditions if condition.status == "True"}
    ready = all(gate.condition_type in gates for gate in pod.spec.readiness_gates)
    started = format_time(now)
    return {
        "phase": "Running",
        **_place(pod, host_ip, now),
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "conditions": _conditions(pod, now, initialized=True, containers=True, ready=ready),
        "initContainerStatuses": [_completed(pod, one, started) for one in pod.spec.init_containers],
        "containerStatuses": [_running(pod, one, started) for one in pod.spec.containers],
    }


def starting_status(pod: Pod, host_ip: str, now: datetime) -> JSONObject:
    """The node has the pod and its containers are being made."""
    return {
        "phase": "Pending",
        **_place(pod, host_ip, now),
        "conditions": _conditions(pod, now, initialized=not pod.spec.init_containers, containers=False, ready=False),
        "initContainerStatuses": [_waiting(one, "PodInitializing") for one in pod.spec.init_containers],
        "containerStatuses": [_waiting(one, "ContainerCreating") for one in pod.spec.containers],
    }


def _place(pod: Pod, host_ip: str, now: datetime) -> JSONObject:
    start = pod.status.start_time or now
    return {"hostIP": host_ip, "hostIPs": [{"ip": host_ip}], "startTime": format_time(start)}


def _conditions(pod: Pod, now: datetime, *, initialized: bool, containers: bool, ready: bool) -> list[JSONObject]:
    names = [one.name for one in pod.spec.containers]
    unready = f"containers with unready status: [{' '.join(names)}]"
    states: list[tuple[str, bool, str, str]] = [
        ("PodReadyToStartContainers", containers, "", ""),
        ("Initialized", initialized, "ContainersNotInitialized", ""),
        ("Ready", ready, "ReadinessGatesNotReady" if containers else "ContainersNotReady", "" if containers else unready),
        ("ContainersReady", containers, "ContainersNotReady", unready),
        ("PodScheduled", True, "", ""),
    ]
    known = {condition.type: condition for condition in pod.status.conditions}
    found: list[JSONObject] = []
    for kind, state, reason, message in states:
        text = "True" if state else "False"
        before = known.get(kind)
        since = before.last_transition_time if before is not None and before.status == text else None
        condition: JSONObject = {"type": kind, "status": text, "lastTransitionTime": format_time(since or now)}
        if pod.metadata.generation:
            condition["observedGeneration"] = pod.metadata.generation
        # A patch leaves what it does not name: the reason of a former False has to be taken back.
        condition["reason"] = reason if not state and reason else None
        condition["message"] = message if not state and message else None
        found.append(condition)
    return found


def _running(pod: Pod, container: Container, started: str) -> JSONObject:
    return {
        "name": container.name,
        "image": container.image or "",
        "imageID": _image_id(container),
        "containerID": _container_id(pod, container),
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": started}, "waiting": None},
        "lastState": {},
    }


def _completed(pod: Pod, container: Container, moment: str) -> JSONObject:
    if container.restart_policy == "Always":  # A sidecar (KEP-753) goes on running.
        return _running(pod, container, moment)
    identity = _container_id(pod, container)
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": moment, "finishedAt": moment, "containerID": identity}
    return {
        "name": container.name,
        "image": container.image or "",
        "imageID": _image_id(container),
        "containerID": identity,
        "ready": True,
        "started": False,
        "restartCount": 0,
        "state": {"terminated": ended, "waiting": None},
        "lastState": {},
    }


def _waiting(container: Container, reason: str) -> JSONObject:
    return {
        "name": container.name,
        "image": container.image or "",
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": reason}},
        "lastState": {},
    }


def _container_id(pod: Pod, container: Container) -> str:
    return "kubeloop://" + hashlib.sha256(f"{pod.metadata.uid}/{container.name}".encode()).hexdigest()


def _image_id(container: Container) -> str:
    return "kubeloop://image/" + hashlib.sha256((container.image or "").encode()).hexdigest()[:12]
