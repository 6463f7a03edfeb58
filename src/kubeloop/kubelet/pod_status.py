"""The status that the kubelet writes for a pod: container statuses, phase and conditions, computed from records of its containers.

Source: Kubernetes pkg/kubelet/kubelet_pods.go (convertToAPIContainerStatuses, getPhase), pkg/kubelet/status/generate.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kubeloop.kubelet.containers import ContainerRecord, Records, is_sidecar, restarts, termination
from kubeloop.kubelet.images import image_id
from kubeloop.meta.time import format_time
from kubeloop.types import JSONObject


@dataclass(frozen=True)
class StatusFacts:
    """The inputs of a pod's status besides its containers.

    ``sandbox`` says that the pod has its address and volumes, and ``terminal`` that no container will run again. ``reason`` and
    ``message`` explain that the kubelet failed the pod, for example after its deadline; the phase is then Failed.
    """

    host_ip: str
    pod_ip: str
    start_time: datetime
    sandbox: bool = False
    terminal: bool = False
    reason: str = ""
    message: str = ""


def pod_status(pod: JSONObject, records: Records, facts: StatusFacts, now: datetime) -> JSONObject:
    """Return the status to write for a pod; a field that the write must remove is None.

    Args:
        pod: The pod as the server stores it; a stored final phase stays.
        records: The records of its containers by name.
        facts: Addresses and decisions of the kubelet.
        now: The present time.
    """
    spec = pod["spec"]
    init = [_container_status(one, records[one["name"]], spec) for one in spec.get("initContainers") or ()]
    main = [_container_status(one, records[one["name"]], spec) for one in spec["containers"]]
    ephemeral = [_container_status(one, records[one["name"]], spec) for one in spec.get("ephemeralContainers") or ()]
    stored = (pod.get("status") or {}).get("phase")
    chosen = "Failed" if facts.reason else phase(pod, init, main, records, terminal=facts.terminal)
    if stored in ("Succeeded", "Failed"):
        chosen = stored
    result: JSONObject = {
        "phase": chosen,
        "conditions": _conditions(pod, chosen, init, main, now, sandbox=facts.sandbox),
        "hostIP": facts.host_ip,
        "hostIPs": [{"ip": facts.host_ip}],
        "startTime": format_time(facts.start_time.replace(microsecond=0)),
        "containerStatuses": main,
        "qosClass": (pod.get("status") or {}).get("qosClass") or None,
    }
    if facts.reason:
        result |= {"reason": facts.reason, "message": facts.message}
    if init:
        result["initContainerStatuses"] = init
    if ephemeral:
        result["ephemeralContainerStatuses"] = ephemeral
    if facts.pod_ip:
        result |= {"podIP": facts.pod_ip, "podIPs": [{"ip": facts.pod_ip}]}
    if generation := pod["metadata"].get("generation"):
        result["observedGeneration"] = generation
    return result


def _container_status(container: JSONObject, record: ContainerRecord, spec: JSONObject) -> JSONObject:
    image = container.get("image") or ""
    result: JSONObject = {
        "name": container["name"],
        "image": image,
        "imageID": "",
        "restartCount": record.restarts,
        "ready": False,
        "started": False,
        "state": {},
        "lastState": {},
    }
    if mounts := container.get("volumeMounts"):
        result["volumeMounts"] = [_mount_status(one) for one in mounts]
    run, last = record.current, record.last
    # Upstream an init container that is no sidecar is ready when it has succeeded, never while it runs.
    is_init = any(one is container for one in spec.get("initContainers") or ()) and not is_sidecar(container)
    if run is not None:
        result["imageID"] = image_id(image)
        if run.id:
            result["containerID"] = f"process://{run.id}"
        resources = {key: value for key, value in (container.get("resources") or {}).items() if value and key != "claims"}
        result["resources"] = resources
        if resources.get("requests"):
            result["allocatedResources"] = resources["requests"]
    if run is not None and run.running:
        ready = run.ready and run.started and not is_init
        result |= {"ready": ready, "started": run.started, "state": {"running": {"startedAt": format_time(run.started_at)}}}
    elif record.waiting_reason or run is None:
        default = "PodInitializing" if spec.get("initContainers") else "ContainerCreating"
        waiting = {"reason": record.waiting_reason or default}
        if record.waiting_message:
            waiting["message"] = record.waiting_message
        result["state"] = {"waiting": waiting}
        last = run or last
    else:
        result["state"] = {"terminated": termination(run)}
        result["ready"] = is_init and run.exit_code == 0
    if last is not None:
        result["lastState"] = {"terminated": termination(last)}
    return result


def _mount_status(mount: JSONObject) -> JSONObject:
    result: JSONObject = {"name": mount["name"], "mountPath": mount["mountPath"]}
    if mount.get("readOnly"):
        result |= {"readOnly": True, "recursiveReadOnly": "Disabled"}
    return result


def phase(pod: JSONObject, init: list[JSONObject], main: list[JSONObject], records: Records, *, terminal: bool) -> str:
    """Return the phase of a pod.

    Args:
        pod: The pod.
        init: Statuses of init containers, in the pod's order.
        main: Statuses of the containers, in the pod's order.
        records: The records of all containers by name.
        terminal: Whether no container will run again.
    """
    spec = pod["spec"]
    pending_init = pending_sidecars = running = waiting = 0
    for container, status in zip(spec.get("initContainers") or (), init, strict=True):
        state, ended = status["state"], (status["lastState"] or {}).get("terminated")
        if is_sidecar(container):
            if state.get("running"):
                running += 1
                pending_sidecars += not status["started"]
            elif state.get("waiting") and not ended:
                pending_sidecars += 1
                waiting += 1
            continue
        finished = state.get("terminated") or (ended if state.get("waiting") else None)
        if finished is None:
            pending_init += 1
        elif finished["exitCode"]:
            run = records[container["name"]].current
            if run is None or not restarts(pod, container, run):
                return "Failed"
            pending_init += 1
    stopped = final = succeeded = 0
    for container, status in zip(spec["containers"], main, strict=True):
        state, run = status["state"], records[container["name"]].current
        if state.get("running"):
            running += 1
        elif run is None:
            waiting += 1
        else:
            stopped += 1
            final += not restarts(pod, container, run)
            succeeded += bool(state.get("terminated")) and run.exit_code == 0
    initialized = any(records[one["name"]].current is not None for one in spec["containers"])
    if (pending_init and not initialized) or (pending_sidecars and not initialized) or waiting:
        if terminal and not initialized:
            return "Failed"
        return "Pending"
    if running:
        return "Running"
    if terminal or stopped == final:
        return "Succeeded" if stopped == succeeded else "Failed"
    return "Running"


def _conditions(
    pod: JSONObject, chosen: str, init: list[JSONObject], main: list[JSONObject], now: datetime, *, sandbox: bool
) -> list[JSONObject]:
    states = {
        "PodReadyToStartContainers": ("True" if sandbox else "False", "", ""),
        "Initialized": _initialized(pod, chosen, init, main),
        "Ready": ("", "", ""),
        "ContainersReady": _containers_ready(pod, chosen, init, main),
        "PodScheduled": ("True", "", ""),
    }
    states["Ready"] = states["ContainersReady"] if states["ContainersReady"][0] == "False" else _gates(pod)
    known = {one["type"]: one for one in (pod.get("status") or {}).get("conditions") or ()}
    result: list[JSONObject] = []
    for kind, (state, reason, message) in states.items():
        before = known.get(kind) or {}
        since = before.get("lastTransitionTime") if before.get("status") == state else None
        condition: JSONObject = {"type": kind, "status": state, "reason": reason or None, "message": message or None}
        condition["lastTransitionTime"] = since or format_time(now.replace(microsecond=0))
        if generation := pod["metadata"].get("generation"):
            condition["observedGeneration"] = generation
        result.append(condition)
    return result


def _initialized(pod: JSONObject, chosen: str, init: list[JSONObject], main: list[JSONObject]) -> tuple[str, str, str]:
    if chosen == "Succeeded":
        return "True", "PodCompleted", ""
    if any(not one["state"].get("waiting") or one["lastState"] for one in main):
        return "True", "", ""
    containers = pod["spec"].get("initContainers") or ()
    incomplete = [
        status["name"]
        for container, status in zip(containers, init, strict=True)
        if not (status["started"] if is_sidecar(container) else status["ready"])
    ]
    if incomplete:
        return "False", "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(incomplete)}]"
    return "True", "", ""


def _containers_ready(pod: JSONObject, chosen: str, init: list[JSONObject], main: list[JSONObject]) -> tuple[str, str, str]:
    if chosen in ("Succeeded", "Failed"):
        return "False", "PodCompleted" if chosen == "Succeeded" else "PodFailed", ""
    sidecars = {one["name"] for one in pod["spec"].get("initContainers") or () if is_sidecar(one)}
    unready = [one["name"] for one in init if one["name"] in sidecars and not one["ready"]]
    unready += [one["name"] for one in main if not one["ready"]]
    if unready:
        return "False", "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    return "True", "", ""


def _gates(pod: JSONObject) -> tuple[str, str, str]:
    """Return status, reason and message of the condition Ready of a pod whose containers are ready, according to its readiness gates."""
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
    """Return whether a field of ``status`` differs from the pod's stored status; empty values equal missing ones."""
    stored = pod.get("status") or {}
    for name, value in status.items():
        if name == "conditions":
            known = {one["type"]: one for one in stored.get("conditions") or ()}
            if any((known.get(one["type"], {}).get(key) or None) != (field or None) for one in value for key, field in one.items()):
                return True
        elif (stored.get(name) or None) != (value or None):
            return True
    return False


def status_patch(pod: JSONObject, status: JSONObject) -> JSONObject:
    """Return the strategic merge patch that updates a pod's stored status.

    The server merges lists of addresses by address, so the patch deletes each address that the pod no longer has.

    Args:
        pod: The pod as the server stores it.
        status: The status to write, from ``pod_status``.
    """
    stored, result = pod.get("status") or {}, dict(status)
    for name in ("hostIPs", "podIPs"):
        kept = {one["ip"] for one in status.get(name) or ()}
        former = [{"$patch": "delete", "ip": one["ip"]} for one in stored.get(name) or () if one["ip"] not in kept]
        if name in status and former:
            result[name] = [*former, *status[name]]
    return {"metadata": {"uid": pod["metadata"]["uid"]}, "status": result}
