"""Computation of the status that a simulated kubelet reports: container states at a moment, and the resulting phase and conditions.

Source: Kubernetes pkg/kubelet/kubelet_pods.go (getPhase, convertToAPIContainerStatuses), pkg/kubelet/status/generate.go.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubeloop.controlplane.pod_references import MissingReferences
from kubeloop.controlplane.simulation import EXIT_CODE, Simulation
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
    """A pod's status at a moment.

    ``seconds`` is the time until the simulation changes the status, or None if it does not change.
    """

    status: JSONObject
    seconds: float | None = None


def starting(pod: JSONObject, addresses: PodAddresses, now: datetime, missing: MissingReferences = NOTHING_MISSING) -> Observation:
    """Return the status of a pod whose containers are being created.

    Args:
        pod: The pod.
        addresses: Its addresses.
        now: The present time.
        missing: The references that keep it from starting.
    """
    spec = pod["spec"]
    first = "PodInitializing" if spec.get("initContainers") else "ContainerCreating"
    init = [_waiting(one, "PodInitializing") for one in spec.get("initContainers") or ()]
    main = [_waiting(one, first) for one in spec.get("containers") or ()]
    return Observation(_status(pod, "Pending", init, main, PodAddresses(addresses.host, ""), now, sandbox=not missing.volumes))


def running(
    pod: JSONObject, simulation: Simulation, addresses: PodAddresses, now: datetime, missing: MissingReferences = NOTHING_MISSING
) -> Observation:
    """Return the status of a pod whose volumes are mounted: containers run, have ended, or wait for missing environment references.

    Args:
        pod: The pod.
        simulation: The behaviour of its containers.
        addresses: Its addresses.
        now: The present time.
        missing: The references that keep containers from starting.
    """
    spec = pod["spec"]
    init: list[JSONObject] = []
    blocked = False
    for container in spec.get("initContainers") or ():
        status = _waiting(container, "PodInitializing") if blocked else _init(pod, container, simulation, now, missing)
        blocked = blocked or not _is_begun(status)
        init.append(status)
    waits = [math.inf]
    main = []
    for container in spec.get("containers") or ():
        status = _waiting(container, "PodInitializing") if blocked else _main(pod, container, simulation, now, missing)
        if started := (status["state"].get("running") or {}).get("startedAt"):
            waits.append(_left(started, simulation.run_seconds(container["name"]), now))
        main.append(status)
    phase = _phase(pod, init, main)
    if phase in ("Succeeded", "Failed"):
        init = [_stopped(one, now, code=0) for one in init]
    status = _status(pod, phase, init, main, addresses, now, sandbox=phase not in ("Succeeded", "Failed"))
    if phase not in ("Succeeded", "Failed") and (deadline := spec.get("activeDeadlineSeconds")) is not None:
        left = _left(status["startTime"], deadline, now)
        if left <= 0:
            main = [_stopped(one, now, code=137) for one in main]
            init = [_stopped(one, now, code=137) for one in init]
            expired = _status(pod, "Failed", init, main, addresses, now, sandbox=False)
            return Observation(expired | {"reason": "DeadlineExceeded", "message": _DEADLINE})
        waits.append(left)
    soonest = min(waits)
    return Observation(status, None if soonest == math.inf else max(soonest, 0.01))


def terminated(pod: JSONObject, addresses: PodAddresses, now: datetime, *, killed: bool) -> JSONObject:
    """Return the status of a pod that was asked to end.

    Args:
        pod: The pod.
        addresses: Its addresses.
        now: The present time.
        killed: The grace period was over before its containers ended.
    """
    code = 137 if killed else 0
    before = pod.get("status") or {}
    init = [_stopped(one, now, code=code) for one in before.get("initContainerStatuses") or ()]
    main = [_stopped(one, now, code=code) for one in before.get("containerStatuses") or ()]
    codes = [one["state"].get("terminated", {}).get("exitCode", 137) for one in main]
    phase = before.get("phase")
    if phase not in ("Succeeded", "Failed"):
        phase = "Succeeded" if main and not any(codes) else "Failed"
    return _status(pod, phase, init, main, addresses, now, sandbox=False)


def stop_seconds(pod: JSONObject, simulation: Simulation) -> float:
    """Return how long the containers of a pod take to end when they are asked to, a hook that sleeps included."""
    result = [0.0]
    for container in pod["spec"].get("containers") or ():
        hook = ((container.get("lifecycle") or {}).get("preStop") or {}).get("sleep") or {}
        result.append(simulation.stop_seconds(container["name"]) + (hook.get("seconds") or 0))
    return max(result)


# ------------------------------------------------------------------------------------------------------------------ containers


def _main(pod: JSONObject, container: JSONObject, simulation: Simulation, now: datetime, missing: MissingReferences) -> JSONObject:
    name = container["name"]
    before = _before(pod, "containerStatuses", name)
    state = before.get("state") or {}
    if state.get("terminated") or (state.get("waiting") or {}).get("reason") == "CrashLoopBackOff":
        return before
    if name in missing.containers:
        return _waiting(container, "CreateContainerConfigError", missing.containers[name])
    started = (state.get("running") or {}).get("startedAt") or format_time(now.replace(microsecond=0))
    if not simulation.passes("livenessProbe", name) and container.get("livenessProbe"):
        return _crashed(pod, container, started, format_time(now), 137)
    seconds = simulation.run_seconds(name)
    if _left(started, seconds, now) > 0:
        return _up(pod, container, started, simulation)
    code = simulation.exit_code(name)
    ended = format_time(parse_time(started) + timedelta(seconds=seconds))
    if simulation.restart_policy == "Always" or (simulation.restart_policy == "OnFailure" and code):
        return _crashed(pod, container, started, ended, code)
    return _ended(pod, container, started, ended, code)


def _init(pod: JSONObject, container: JSONObject, simulation: Simulation, now: datetime, missing: MissingReferences) -> JSONObject:
    """Return the status of an init container.

    An ordinary init container completes at once. A sidecar (restartPolicy Always, KEP-753) keeps running beside the later containers.
    """
    name = container["name"]
    before = _before(pod, "initContainerStatuses", name)
    state = before.get("state") or {}
    if state.get("terminated") or (state.get("waiting") or {}).get("reason") == "CrashLoopBackOff":
        return before
    if name in missing.containers:
        return _waiting(container, "CreateContainerConfigError", missing.containers[name])
    moment = (state.get("running") or {}).get("startedAt") or format_time(now.replace(microsecond=0))
    if container.get("restartPolicy") == "Always":
        return _up(pod, container, moment, simulation)
    code = simulation.exit_code(name) if name in simulation.values.get(EXIT_CODE, {}) else 0
    if code and simulation.restart_policy != "Never":
        return _crashed(pod, container, moment, moment, code)
    return _ended(pod, container, moment, moment, code) | {"ready": code == 0}


def _is_begun(init: JSONObject) -> bool:
    """Return whether the containers after an init container may start: it has completed, or is a sidecar that has started."""
    return bool(init["ready"] or (init["state"].get("running") and init["started"]))


def _before(pod: JSONObject, kind: str, name: str) -> JSONObject:
    statuses = (pod.get("status") or {}).get(kind) or ()
    return next((one for one in statuses if one["name"] == name), {})


def _left(started: str, seconds: float, now: datetime) -> float:
    return seconds - (now - parse_time(started)).total_seconds()


def _base(pod: JSONObject, container: JSONObject) -> JSONObject:
    resources = {key: value for key, value in (container.get("resources") or {}).items() if value}
    image = container.get("image") or ""
    identity = hashlib.sha256(f"{pod['metadata'].get('uid')}/{container['name']}".encode()).hexdigest()
    result = {
        "name": container["name"],
        "image": image,
        "imageID": "kubeloop://image/" + hashlib.sha256(image.encode()).hexdigest()[:12],
        "containerID": f"kubeloop://{identity}",
        "restartCount": 0,
        "lastState": {},
        "resources": resources,
    }
    if resources.get("requests"):
        result["allocatedResources"] = resources["requests"]
    return result


def _up(pod: JSONObject, container: JSONObject, started: str, simulation: Simulation) -> JSONObject:
    name = container["name"]
    begun = not container.get("startupProbe") or simulation.passes("startupProbe", name)
    ready = begun and (not container.get("readinessProbe") or simulation.passes("readinessProbe", name))
    return _base(pod, container) | {"ready": ready, "started": begun, "state": {"running": {"startedAt": started}}}


def _termination(base: JSONObject, started: str, ended: str, code: int) -> JSONObject:
    reason = "Error" if code else "Completed"
    return {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": ended, "containerID": base["containerID"]}


def _ended(pod: JSONObject, container: JSONObject, started: str, ended: str, code: int) -> JSONObject:
    base = _base(pod, container)
    return base | {"ready": False, "started": False, "state": {"terminated": _termination(base, started, ended, code)}}


def _crashed(pod: JSONObject, container: JSONObject, started: str, ended: str, code: int) -> JSONObject:
    base, metadata = _base(pod, container), pod["metadata"]
    subject = f"container={container['name']} pod={metadata['name']}_{metadata.get('namespace')}({metadata.get('uid')})"
    waiting = {"reason": "CrashLoopBackOff", "message": f"back-off 5m0s restarting failed {subject}"}
    last = {"terminated": _termination(base, started, ended, code)}
    return base | {"ready": False, "started": False, "restartCount": 1, "state": {"waiting": waiting}, "lastState": last}


def _stopped(status: JSONObject, now: datetime, *, code: int) -> JSONObject:
    """Return the status of a container that was told to stop. The status of a container that has ended or never started stays."""
    started = (status["state"].get("running") or {}).get("startedAt")
    if started is None:
        return status
    termination = _termination(status, started, format_time(now.replace(microsecond=0)), code)
    return status | {"ready": False, "started": False, "state": {"terminated": termination}}


def _waiting(container: JSONObject, reason: str, message: str = "") -> JSONObject:
    waiting = {"reason": reason, "message": message} if message else {"reason": reason}
    return {
        "name": container["name"],
        "image": container.get("image") or "",
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": {"waiting": waiting},
        "lastState": {},
    }


# ------------------------------------------------------------------------------------------------------------------------- pods


def _phase(pod: JSONObject, init: list[JSONObject], main: list[JSONObject]) -> str:
    policy = pod["spec"].get("restartPolicy") or "Always"
    for status in init:
        if (status["state"].get("terminated") or {}).get("exitCode") and policy == "Never":
            return "Failed"
    if any(not _is_begun(one) for one in init) and not any(one["state"].get("running") for one in main):
        return "Pending"
    crashed = [one for one in main if (one["state"].get("waiting") or {}).get("reason") == "CrashLoopBackOff"]
    if any(one["state"].get("waiting") and one not in crashed for one in main):
        return "Pending"
    ended = [one["state"]["terminated"] for one in main if one["state"].get("terminated")]
    if not main or len(ended) < len(main):
        return "Running"
    return "Failed" if any(one["exitCode"] for one in ended) else "Succeeded"


def _status(
    pod: JSONObject, phase: str, init: list[JSONObject], main: list[JSONObject], addresses: PodAddresses, now: datetime, *, sandbox: bool
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
    if generation := pod["metadata"].get("generation"):
        result["observedGeneration"] = generation
    if addresses.pod:
        result |= {"podIP": addresses.pod, "podIPs": [{"ip": addresses.pod}]}
    return result


def _conditions(
    pod: JSONObject, phase: str, init: list[JSONObject], main: list[JSONObject], now: datetime, *, sandbox: bool
) -> list[JSONObject]:
    sidecars = {one["name"] for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"}
    unready = [one["name"] for one in [*init, *main] if not one["ready"] and (one in main or one["name"] in sidecars)]
    incomplete = [one["name"] for one in init if not _is_begun(one)]
    any_started = any(not one["state"].get("waiting") or one["restartCount"] for one in main)
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
        # A patch leaves what it does not name: the reason of a former state has to be taken back.
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


def differs(pod: JSONObject, status: JSONObject) -> bool:
    """Return whether a pod's stored status lacks something of ``status``."""
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
