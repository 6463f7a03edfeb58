"""Computes the status of a pod that a simulated kubelet reports: phase and conditions from the states of the containers.

Source: Kubernetes pkg/kubelet/kubelet_pods.go (getPhase, convertToAPIContainerStatuses), pkg/kubelet/status/generate.go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from kubeloop.controlplane.simulation.annotations import Simulation
from kubeloop.controlplane.simulation.containers import (
    RESTARTING_ALL,
    ContainerSimulator,
    PodEvent,
    PodMemory,
    is_sidecar,
    removed,
    should_restart,
    stopped,
    waiting,
)
from kubeloop.controlplane.simulation.pod_references import MissingReferences
from kubeloop.meta import format_time
from kubeloop.meta.time import parse_time
from kubeloop.types import JSONObject

_DEADLINE = "Pod was active on the node longer than the specified deadline"
NOTHING_MISSING = MissingReferences({}, {})


@dataclass(frozen=True)
class PodAddresses:
    """The IP addresses of a pod and of its node."""

    host: str
    pod: str


@dataclass(frozen=True)
class Observation:
    """The present status of a pod.

    ``seconds`` is the number of seconds until the simulation changes the status; None if it does not change. ``events`` has the Events of
    changes in this status.
    """

    status: JSONObject
    seconds: float | None = None
    events: tuple[PodEvent, ...] = ()


def starting(pod: JSONObject, addresses: PodAddresses, now: datetime, missing: MissingReferences = NOTHING_MISSING) -> Observation:
    """Return the status of a pod whose containers are being created.

    Args:
        pod: The pod.
        addresses: The addresses of the pod and its node.
        now: The present time.
        missing: The references that prevent the pod from starting.
    """
    spec = pod["spec"]
    first = "PodInitializing" if spec.get("initContainers") else "ContainerCreating"
    init = [waiting(one, "PodInitializing") for one in spec.get("initContainers") or ()]
    main = [waiting(one, first) for one in spec.get("containers") or ()]
    return Observation(_status(pod, "Pending", init, main, PodAddresses(addresses.host, ""), now, sandbox=not missing.volumes))


def running(
    pod: JSONObject,
    simulation: Simulation,
    addresses: PodAddresses,
    now: datetime,
    missing: MissingReferences = NOTHING_MISSING,
    memory: PodMemory | None = None,
) -> Observation:
    """Return the status of a pod whose volumes are mounted; its containers may wait, run or have ended.

    Args:
        pod: The pod.
        simulation: The behaviour of its containers.
        addresses: The addresses of the pod and its node.
        now: The present time.
        missing: The references that prevent containers from starting.
        memory: The memory of the pod, which the call updates; None: a new one.
    """
    spec = pod["spec"]
    simulator = ContainerSimulator(pod, simulation, memory if memory is not None else PodMemory(), missing, now)
    begun = any(_has_started(one) for one in _statuses(pod, "containerStatuses"))
    init: list[JSONObject] = []
    blocked = False
    for container in spec.get("initContainers") or ():
        before = _before(pod, "initContainerStatuses", container["name"])
        # A running sidecar is simulated even if an earlier sidecar has crashed.
        if blocked and not (before.get("state") or {}).get("running"):
            init.append(waiting(container, "PodInitializing", "", before))
            continue
        status = simulator.step(container, before, "sidecar" if is_sidecar(container) else "init")
        blocked = blocked or not (begun or _is_begun(container, status))
        init.append(status)
    main = []
    for container in spec.get("containers") or ():
        before = _before(pod, "containerStatuses", container["name"])
        main.append(waiting(container, "PodInitializing", "", before) if blocked else simulator.step(container, before))
    ephemeral = [
        simulator.step(container, _before(pod, "ephemeralContainerStatuses", container["name"]), "ephemeral")
        for container in spec.get("ephemeralContainers") or ()
        if not blocked
    ]
    if simulator.restarts_all:
        init, main = [removed(one) for one in init], [removed(one) for one in main]
    phase = _phase(spec, init, main)
    if main and all(_has_ended_for_good(spec, container, one) for container, one in zip(spec["containers"], main, strict=True)):
        init = [stopped(one, now, 0) for one in init]
        ephemeral = [stopped(one, now, 0) for one in ephemeral]
        phase = _phase(spec, init, main)
    ended = phase in ("Succeeded", "Failed")
    if ended:
        init = [stopped(one, now, 137) for one in init]
        main = [stopped(one, now, 137) for one in main]
    status = _status(pod, phase, init, main, addresses, now, ephemeral=ephemeral, sandbox=not ended)
    wake = simulator.wake
    if not ended and (deadline := spec.get("activeDeadlineSeconds")) is not None:
        left = deadline - (now - parse_time(status["startTime"])).total_seconds()
        if left <= 0:
            init, main = [stopped(one, now, 137) for one in init], [stopped(one, now, 137) for one in main]
            expired = _status(pod, "Failed", init, main, addresses, now, ephemeral=ephemeral, sandbox=False)
            event = PodEvent("Normal", "DeadlineExceeded", _DEADLINE)
            return Observation(expired | {"reason": "DeadlineExceeded", "message": _DEADLINE}, None, (*simulator.events, event))
        wake = min(wake, left)
    return Observation(status, None if ended or wake == math.inf else max(wake, 0.01), tuple(simulator.events))


def terminated(pod: JSONObject, addresses: PodAddresses, now: datetime, *, killed: bool) -> JSONObject:
    """Return the status of a deleted pod after its containers have been stopped.

    Args:
        pod: The pod.
        addresses: The addresses of the pod and its node.
        now: The present time.
        killed: Whether containers were killed because the grace period was over.
    """
    code = 137 if killed else 0
    init = [stopped(one, now, code) for one in _statuses(pod, "initContainerStatuses")]
    main = [stopped(one, now, code) for one in _statuses(pod, "containerStatuses")]
    ephemeral = [stopped(one, now, code) for one in _statuses(pod, "ephemeralContainerStatuses")]
    codes = [one["state"].get("terminated", {}).get("exitCode", 137) for one in main]
    phase = (pod.get("status") or {}).get("phase")
    if phase not in ("Succeeded", "Failed"):
        phase = "Succeeded" if main and not any(codes) else "Failed"
    return _status(pod, phase, init, main, addresses, now, ephemeral=ephemeral, sandbox=False)


def stop_seconds(pod: JSONObject, simulation: Simulation) -> float:
    """Return how many seconds the containers of a pod take to stop, including preStop hooks that sleep.

    Main containers stop at the same time, and then sidecars one by one in reverse order.
    """
    spec = pod["spec"]
    main = [_stop(container, simulation) for container in spec.get("containers") or ()]
    sidecars = [_stop(container, simulation) for container in spec.get("initContainers") or () if is_sidecar(container)]
    return max(main, default=0.0) + sum(sidecars)


def _stop(container: JSONObject, simulation: Simulation) -> float:
    hook = ((container.get("lifecycle") or {}).get("preStop") or {}).get("sleep") or {}
    return simulation.stop_seconds(container["name"]) + float(hook.get("seconds") or 0)


def _statuses(pod: JSONObject, kind: str) -> list[JSONObject]:
    return list((pod.get("status") or {}).get(kind) or ())


def _before(pod: JSONObject, kind: str, name: str) -> JSONObject:
    return next((one for one in _statuses(pod, kind) if one["name"] == name), {})


def _has_started(status: JSONObject) -> bool:
    state = status["state"]
    reason = (state.get("waiting") or {}).get("reason")
    return reason != RESTARTING_ALL and bool(
        state.get("running") or state.get("terminated") or (status.get("lastState") or {}).get("terminated")
    )


def _is_begun(container: JSONObject, status: JSONObject) -> bool:
    """Return whether the containers after an init container may start: it has completed, or is a sidecar that has started."""
    if is_sidecar(container):
        return bool(status["state"].get("running") and status["started"])
    return bool(status["ready"])


def _end_of(status: JSONObject) -> JSONObject | None:
    """Return the ``terminated`` state of a container that has ended or waits for its restart, or None."""
    state = status["state"]
    return state.get("terminated") or ((status.get("lastState") or {}).get("terminated") if state.get("waiting") else None)


def _has_ended_for_good(spec: JSONObject, container: JSONObject, status: JSONObject) -> bool:
    ended = status["state"].get("terminated")
    return ended is not None and not should_restart(spec, container, ended["exitCode"])


# ------------------------------------------------------------------------------------------------------------------------- pods


def _phase(spec: JSONObject, init: list[JSONObject], main: list[JSONObject]) -> str:
    pending = waiting_sidecars = active = 0
    for container, status in zip(spec.get("initContainers") or (), init, strict=True):
        ended, state = _end_of(status), status["state"]
        if is_sidecar(container):
            active += bool(state.get("running"))
            waiting_sidecars += not (ended or (state.get("running") and status["started"]))
        elif ended is None:
            pending += 1
        elif ended["exitCode"] and not (ended["reason"] == RESTARTING_ALL or should_restart(spec, container, ended["exitCode"])):
            return "Failed"
    ends = [(container, _end_of(status)) for container, status in zip(spec.get("containers") or (), main, strict=True)]
    running_main = sum(bool(one["state"].get("running")) for one in main)
    initialized = any(map(_has_started, main))
    if pending or (waiting_sidecars and not initialized) or running_main + sum(end is not None for _, end in ends) < len(main):
        return "Pending"
    if running_main or active:
        return "Running"
    if any(end is not None and _is_restartable(spec, container, end) for container, end in ends):
        return "Running"
    return "Failed" if any(end is not None and end["exitCode"] for _, end in ends) else "Succeeded"


def _is_restartable(spec: JSONObject, container: JSONObject, end: JSONObject) -> bool:
    return end.get("reason") == RESTARTING_ALL or should_restart(spec, container, end["exitCode"])


def _status(
    pod: JSONObject,
    phase: str,
    init: list[JSONObject],
    main: list[JSONObject],
    addresses: PodAddresses,
    now: datetime,
    *,
    sandbox: bool,
    ephemeral: list[JSONObject] | None = None,
) -> JSONObject:
    before = pod.get("status") or {}
    result: JSONObject = {
        "phase": phase,
        "hostIP": addresses.host,
        "hostIPs": [{"ip": addresses.host}],
        "startTime": before.get("startTime") or format_time(now.replace(microsecond=0)),
        "conditions": _conditions(pod, phase, init, main, now, sandbox=sandbox),
        "initContainerStatuses": init,
        "containerStatuses": main,
    }
    if ephemeral:
        result["ephemeralContainerStatuses"] = ephemeral
    if generation := pod["metadata"].get("generation"):
        result["observedGeneration"] = generation
    if addresses.pod:
        result |= {"podIP": addresses.pod, "podIPs": [{"ip": addresses.pod}]}
    return result


def _conditions(
    pod: JSONObject, phase: str, init: list[JSONObject], main: list[JSONObject], now: datetime, *, sandbox: bool
) -> list[JSONObject]:
    containers_of_init = {one["name"]: one for one in pod["spec"].get("initContainers") or ()}
    sidecars = [one for one in init if is_sidecar(containers_of_init.get(one["name"], {}))]
    unready = [one["name"] for one in [*sidecars, *main] if not one["ready"]]
    incomplete = [one["name"] for one in init if not _is_begun(containers_of_init.get(one["name"], {}), one)]
    any_started = any(map(_has_started, main))
    terminal = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "")
    if terminal:
        containers = ("False", terminal, "")
    elif unready:
        containers = ("False", "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    else:
        containers = ("True", "", "")
    if phase == "Succeeded":
        initialized = ("True", "PodCompleted", "")
    elif not incomplete or any_started:
        initialized = ("True", "", "")
    else:
        initialized = ("False", "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]")
    states = {
        "PodReadyToStartContainers": ("True" if sandbox else "False", "", ""),
        "Initialized": initialized,
        "Ready": containers if containers[0] == "False" else _gates(pod),
        "ContainersReady": containers,
        "PodScheduled": ("True", "", ""),
    }
    known = {one["type"]: one for one in (pod.get("status") or {}).get("conditions") or ()}
    result: list[JSONObject] = []
    for kind, (state, reason, message) in states.items():
        before = known.get(kind) or {}
        since = before.get("lastTransitionTime") if before.get("status") == state else None
        condition: JSONObject = {"type": kind, "status": state, "lastTransitionTime": since or format_time(now.replace(microsecond=0))}
        if generation := pod["metadata"].get("generation"):
            condition["observedGeneration"] = generation
        # A patch leaves fields unchanged that it does not name, so an old reason must be removed explicitly.
        result.append(condition | {"reason": reason or None, "message": message or None})
    return result


def _gates(pod: JSONObject) -> tuple[str, str, str]:
    states = {one["type"]: one["status"] for one in (pod.get("status") or {}).get("conditions") or ()}
    faults = []
    for gate in pod["spec"].get("readinessGates") or ():
        kind = gate["conditionType"]
        if kind not in states:
            faults.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif states[kind] != "True":
            faults.append(f'the status of pod readiness gate "{kind}" is not "True", but {states[kind]}')
    return ("False", "ReadinessGatesNotReady", ", ".join(faults)) if faults else ("True", "", "")


# Resizes in place that a node has no room for. Source: Kubernetes pkg/kubelet/allocation/allocation_manager.go.

RESIZE_PENDING = "PodResizePending"


def is_resized(pod: JSONObject) -> bool:
    """Return whether a running container requests other resources than its node has allocated to the container."""
    allocated = {one["name"]: one for one in _statuses(pod, "containerStatuses") if one["state"].get("running")}
    return any(
        (container.get("resources") or {}).get("requests") != allocated[container["name"]].get("allocatedResources")
        for container in pod["spec"].get("containers") or ()
        if container["name"] in allocated
    )


def as_allocated(pod: JSONObject) -> JSONObject:
    """Return a copy of a pod in which running containers have the resources that the node has allocated to them."""
    resources = {one["name"]: one.get("resources") or {} for one in _statuses(pod, "containerStatuses") if one["state"].get("running")}
    containers = [
        one | {"resources": resources[one["name"]]} if one["name"] in resources else one for one in pod["spec"].get("containers") or ()
    ]
    return pod | {"spec": pod["spec"] | {"containers": containers}}


def with_resize(status: JSONObject, pod: JSONObject, message: str, now: datetime) -> JSONObject:
    """Return a status with the condition PodResizePending, or with its removal.

    Args:
        status: The status, which lacks the condition.
        pod: The pod.
        message: Why the resize is deferred; "" if it is not, which removes the condition.
        now: The present time.
    """
    before = next((one for one in (pod.get("status") or {}).get("conditions") or () if one["type"] == RESIZE_PENDING), None)
    if not message:
        return status if before is None else status | {"conditions": [*status["conditions"], {"type": RESIZE_PENDING, "$patch": "delete"}]}
    condition = {
        "type": RESIZE_PENDING,
        "status": "True",
        "reason": "Deferred",
        "message": message,
        "lastTransitionTime": (before or {}).get("lastTransitionTime") or format_time(now.replace(microsecond=0)),
        "observedGeneration": pod["metadata"].get("generation"),
    }
    return status | {"conditions": [*status["conditions"], condition]}


def differs(pod: JSONObject, status: JSONObject) -> bool:
    """Return whether a field of ``status`` differs from the pod's stored status; empty values equal missing ones."""
    stored = pod.get("status") or {}
    for name, value in status.items():
        if name == "conditions":
            known = {one["type"]: one for one in stored.get("conditions") or ()}
            if any(_lacks(known.get(one["type"]) or {}, one) for one in value):
                return True
        elif (stored.get(name) or None) != (value or None):
            return True
    return False


def _lacks(stored: JSONObject, desired: JSONObject) -> bool:
    return any((stored.get(key) or None) != (value or None) for key, value in desired.items())
