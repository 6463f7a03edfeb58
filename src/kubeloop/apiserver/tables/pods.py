"""The Table of pods: how a pod's state is summed up in the words that people know (CrashLoopBackOff, Init:0/1, Terminating).

Source: kubernetes pkg/printers/internalversion printPod.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kubeloop.apiserver.tables.layout import Layout, age, age_of, layout, name_of, part
from kubeloop.types import JSONObject


@dataclass(slots=True)
class _Summary:
    reason: str
    ready: int = 0
    restarts: int = 0
    #: When a container last ended before it was restarted; RFC 3339 texts in UTC sort by time.
    last_restart: str = ""

    def count(self, status: JSONObject) -> None:
        self.restarts += status.get("restartCount") or 0
        ended = part(status, "lastState", "terminated").get("finishedAt") or ""
        self.last_restart = max(self.last_restart, ended)


def _is_true(obj: JSONObject, condition: str) -> bool:
    found = next((one for one in part(obj, "status").get("conditions") or [] if one.get("type") == condition), None)
    return found is not None and found.get("status") == "True"


def _ended(terminated: JSONObject) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _first_reason(obj: JSONObject) -> str:
    status = part(obj, "status")
    conditions = status.get("conditions") or []
    if any(one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated" for one in conditions):
        return "SchedulingGated"
    return str(status.get("reason") or status.get("phase") or "")


def _init_reason(status: JSONObject, at: int, total: int) -> str:
    """What an init container that is not done says."""
    state = part(status, "state")
    waiting = part(state, "waiting").get("reason")
    if state.get("terminated") is not None:
        return f"Init:{_ended(state['terminated'])}"
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{at}/{total}"


def _init(obj: JSONObject, summary: _Summary) -> tuple[bool, _Summary]:
    """Whether the pod is still initializing; and the restarts of sidecars, which count for good."""
    specs = {one.get("name"): one for one in part(obj, "spec").get("initContainers") or []}
    sidecars = _Summary("")
    for at, status in enumerate(part(obj, "status").get("initContainerStatuses") or []):
        sidecar = part(specs, str(status.get("name"))).get("restartPolicy") == "Always"
        summary.count(status)
        if sidecar:
            sidecars.count(status)
        terminated = part(status, "state").get("terminated")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if sidecar and status.get("started"):
            summary.ready += bool(status.get("ready"))
            continue
        summary.reason = _init_reason(status, at, len(specs))
        return True, sidecars
    return False, sidecars


def _main(obj: JSONObject, summary: _Summary) -> None:
    running, error = False, ""
    for status in reversed(part(obj, "status").get("containerStatuses") or []):
        summary.count(status)
        state = part(status, "state")
        if part(state, "waiting").get("reason"):
            summary.reason = state["waiting"]["reason"]
        elif state.get("terminated") is not None:
            summary.reason = _ended(state["terminated"])
            if state["terminated"].get("exitCode"):
                error = summary.reason
        elif status.get("ready") and state.get("running") is not None:
            running = True
            summary.ready += 1
    if summary.reason == "Completed":
        if running and _is_true(obj, "Ready"):
            summary.reason = "Running"
        elif error:
            summary.reason = error
        elif running:
            summary.reason = "NotReady"


def _summary(obj: JSONObject) -> _Summary:
    summary = _Summary(_first_reason(obj))
    initializing, sidecars = _init(obj, summary)
    if not initializing or _is_true(obj, "Initialized"):
        summary.restarts, summary.last_restart = sidecars.restarts, sidecars.last_restart
        _main(obj, summary)
    if obj["metadata"].get("deletionTimestamp"):
        if part(obj, "status").get("reason") == "NodeLost":
            summary.reason = "Unknown"
        elif part(obj, "status").get("phase") not in ("Succeeded", "Failed"):
            summary.reason = "Terminating"
    return summary


def _gates(obj: JSONObject) -> str:
    gates = part(obj, "spec").get("readinessGates") or []
    if not gates:
        return "<none>"
    return f"{sum(_is_true(obj, gate.get('conditionType', '')) for gate in gates)}/{len(gates)}"


def _cells(obj: JSONObject, now: float) -> list[Any]:
    spec, status, summary = part(obj, "spec"), part(obj, "status"), _summary(obj)
    sidecars = sum(one.get("restartPolicy") == "Always" for one in spec.get("initContainers") or [])
    restarts = str(summary.restarts)
    if summary.restarts and summary.last_restart:
        restarts += f" ({age(summary.last_restart, now)} ago)"
    addresses = status.get("podIPs") or [{}]
    return [
        name_of(obj),
        f"{summary.ready}/{len(spec.get('containers') or []) + sidecars}",
        summary.reason,
        restarts,
        age_of(obj, now),
        addresses[0].get("ip") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        _gates(obj),
    ]


def _conditions(obj: JSONObject) -> list[JSONObject] | None:
    match part(obj, "status").get("phase"):
        case "Succeeded":
            return [{"type": "Completed", "status": "True", "reason": "Succeeded", "message": "The pod has completed successfully."}]
        case "Failed":
            return [{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}]
        case _:
            return None


_COLUMNS = layout("Name | Ready | Status | Restarts | Age | IP! | Node! | Nominated Node! | Readiness Gates!", _cells)
PODS: Final = Layout(_COLUMNS.headers, _cells, _conditions)
