"""Tables of workloads. Source: kubernetes pkg/printers/internalversion."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from kubeloop.endpoints.tables.layout import (
    Layout,
    age,
    age_of,
    between,
    containers_text,
    labels_text,
    layout,
    name_of,
    part,
    selector_text,
)
from kubeloop.types import JSONObject


def _replicas(obj: JSONObject, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    counts = [spec.get("replicas") or 0, status.get("replicas") or 0, status.get("readyReplicas") or 0]
    return [name_of(obj), *counts, age_of(obj, now), *containers_text(part(spec, "template", "spec"))]


def _replica_set(obj: JSONObject, now: float) -> list[Any]:
    return [*_replicas(obj, now), selector_text(part(obj, "spec").get("selector"))]


def _replication_controller(obj: JSONObject, now: float) -> list[Any]:
    return [*_replicas(obj, now), labels_text(part(obj, "spec").get("selector"))]


def _deployment(obj: JSONObject, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    selector = selector_text(spec.get("selector"))
    return [
        name_of(obj),
        f"{status.get('readyReplicas') or 0}/{spec.get('replicas') or 0}",
        status.get("updatedReplicas") or 0,
        status.get("availableReplicas") or 0,
        age_of(obj, now),
        *containers_text(part(spec, "template", "spec")),
        {"<none>": "", "<error>": "<invalid>"}.get(selector, selector),
    ]


def _stateful_set(obj: JSONObject, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    ready = f"{status.get('readyReplicas') or 0}/{spec.get('replicas') or 0}"
    return [name_of(obj), ready, age_of(obj, now), *containers_text(part(spec, "template", "spec"))]


def _daemon_set(obj: JSONObject, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    counted = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable")
    pod = part(spec, "template", "spec")
    return [
        name_of(obj),
        *(status.get(name) or 0 for name in counted),
        labels_text(pod.get("nodeSelector")),
        age_of(obj, now),
        *containers_text(pod),
        selector_text(spec.get("selector")),
    ]


def _controller_revision(obj: JSONObject, now: float) -> list[Any]:
    owner = next((one for one in obj["metadata"].get("ownerReferences") or [] if one.get("controller")), None)
    shown = "<none>"
    if owner is not None:
        group = owner.get("apiVersion", "").rpartition("/")[0]
        shown = f"{owner['kind']}{'.' if group else ''}{group}".lower() + f"/{owner['name']}"
    return [name_of(obj), shown, obj.get("revision") or 0, age_of(obj, now)]


def _job_status(obj: JSONObject) -> str:
    states: dict[str, str] = {}
    for one in part(obj, "status").get("conditions") or []:
        states.setdefault(one.get("type", ""), one.get("status", ""))
    for condition in ("Complete", "Failed"):
        if states.get(condition) == "True":
            return condition
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    waiting = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((condition for condition in waiting if states.get(condition) == "True"), "Running")


def _job(obj: JSONObject, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    wanted, parallel = spec.get("completions"), spec.get("parallelism") or 0
    of = str(wanted) if wanted is not None else f"1 of {parallel}" if parallel > 1 else "1"
    started, done = status.get("startTime"), status.get("completionTime")
    took = "" if not started else between(started, done) if done else age(started, now)
    return [
        name_of(obj),
        _job_status(obj),
        f"{status.get('succeeded') or 0}/{of}",
        took,
        age_of(obj, now),
        *containers_text(part(spec, "template", "spec")),
        selector_text(spec.get("selector")),
    ]


def _cron_job(obj: JSONObject, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    job, suspended, last = part(spec, "jobTemplate", "spec"), spec.get("suspend"), status.get("lastScheduleTime")
    return [
        name_of(obj),
        spec.get("schedule") or "",
        spec.get("timeZone") or "<none>",
        "<unset>" if suspended is None else "True" if suspended else "False",
        len(status.get("active") or []),
        age(last, now) if last else "<none>",
        age_of(obj, now),
        *containers_text(part(job, "template", "spec")),
        selector_text(job.get("selector")),
    ]


def _pod_template(obj: JSONObject, _: float) -> list[Any]:
    template = part(obj, "template")
    return [name_of(obj), *containers_text(part(template, "spec")), labels_text(part(template, "metadata").get("labels"))]


def _disruption_budget(obj: JSONObject, now: float) -> list[Any]:
    spec = part(obj, "spec")
    limits = [str(spec[name]) if spec.get(name) is not None else "N/A" for name in ("minAvailable", "maxUnavailable")]
    return [name_of(obj), *limits, part(obj, "status").get("disruptionsAllowed") or 0, age_of(obj, now)]


_REPLICAS = "Name | Desired:integer | Current:integer | Ready:integer | Age | Containers! | Images! | Selector!"
_DAEMONS = "Name | Desired:integer | Current:integer | Ready:integer | Up-to-date:integer | Available:integer | Node Selector | Age"
_JOBS = "Name | Status | Completions | Duration | Age | Containers! | Images! | Selector!"
_CRON_JOBS = "Name | Schedule | Timezone | Suspend:boolean | Active:integer | Last Schedule | Age | Containers! | Images! | Selector!"

#: Table layouts by "RESOURCE.GROUP"; resources of the core group have no suffix.
WORKLOADS: Final[dict[str, Layout]] = {
    "replicationcontrollers": layout(_REPLICAS, _replication_controller),
    "podtemplates": layout("Name | Containers | Images | Pod Labels", _pod_template),
    "replicasets.apps": layout(_REPLICAS, _replica_set),
    "deployments.apps": layout("Name | Ready | Up-to-date | Available | Age | Containers! | Images! | Selector!", _deployment),
    "statefulsets.apps": layout("Name | Ready | Age | Containers! | Images!", _stateful_set),
    "daemonsets.apps": layout(f"{_DAEMONS} | Containers! | Images! | Selector!", _daemon_set),
    "controllerrevisions.apps": layout("Name | Controller | Revision | Age", _controller_revision),
    "jobs.batch": layout(_JOBS, _job),
    "cronjobs.batch": layout(_CRON_JOBS, _cron_job),
    "poddisruptionbudgets.policy": layout("Name | Min Available | Max Unavailable | Allowed Disruptions:integer | Age", _disruption_budget),
}


# The Table of pods: the state of a pod as kubectl shows it (CrashLoopBackOff, Init:0/1, Terminating).
#
# Source: kubernetes pkg/printers/internalversion printPod.


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
    """Return the STATUS text for an init container that has not completed, such as ``Init:0/2`` or ``Init:Error``."""
    state = part(status, "state")
    waiting = part(state, "waiting").get("reason")
    if state.get("terminated") is not None:
        return f"Init:{_ended(state['terminated'])}"
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{at}/{total}"


def _init(obj: JSONObject, summary: _Summary) -> tuple[bool, _Summary]:
    """Return whether the pod is still initializing, and the pod's summary including the restarts of its sidecars."""
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


def _pod(obj: JSONObject, now: float) -> list[Any]:
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


def _pod_conditions(obj: JSONObject) -> list[JSONObject] | None:
    match part(obj, "status").get("phase"):
        case "Succeeded":
            return [{"type": "Completed", "status": "True", "reason": "Succeeded", "message": "The pod has completed successfully."}]
        case "Failed":
            return [{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}]
        case _:
            return None


_PODS = layout("Name | Ready | Status | Restarts | Age | IP! | Node! | Nominated Node! | Readiness Gates!", _pod)
PODS: Final = Layout(_PODS.headers, _pod, _pod_conditions)


# The Table of horizontal pod autoscalers: current and target values of their metrics.
#
# Source: kubernetes pkg/printers/internalversion formatHPAMetrics.


_METRIC_FIELDS: Final = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
_ANNOTATION: Final = "autoscaling.alpha.kubernetes.io/"
_UNKNOWN: Final = "<unknown>"


def _autoscaler(obj: JSONObject, now: float) -> list[Any]:
    spec, status = part(obj, "spec"), part(obj, "status")
    target, least = part(spec, "scaleTargetRef"), spec.get("minReplicas")
    return [
        name_of(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(*_of_either_version(obj)),
        "<unset>" if least is None else str(least),
        spec.get("maxReplicas") or 0,
        status.get("currentReplicas") or 0,
        age_of(obj, now),
    ]


def _of_either_version(obj: JSONObject) -> tuple[list[JSONObject], list[JSONObject]]:
    """Return the target and the current metrics of an autoscaler of any API version.

    autoscaling/v1 has a field for CPU, and annotations for other metrics.
    """
    spec, status = part(obj, "spec"), part(obj, "status")
    annotations = obj["metadata"].get("annotations") or {}
    return (
        spec.get("metrics") or _of_v1(spec.get("targetCPUUtilizationPercentage"), "target", annotations.get(f"{_ANNOTATION}metrics")),
        status.get("currentMetrics")
        or _of_v1(status.get("currentCPUUtilizationPercentage"), "current", annotations.get(f"{_ANNOTATION}current-metrics")),
    )


def _of_v1(percentage: int | None, below: str, annotation: str | None) -> list[JSONObject]:
    metrics: list[JSONObject] = []
    if percentage is not None:
        metrics.append({"type": "Resource", "resource": {"name": "cpu", below: {"averageUtilization": percentage}}})
    try:
        others = json.loads(annotation or "[]")
    except ValueError:
        return metrics
    for other in others if isinstance(others, list) else []:
        field = _METRIC_FIELDS.get(other.get("type", ""), "")
        source = dict(part(other, field))
        source[below] = {
            name: source.get(f"{below}{name[:1].upper()}{name[1:]}") for name in ("averageValue", "averageUtilization", "value")
        }
        source[below] = {name: value for name, value in source[below].items() if value is not None}
        metrics.append({"type": other.get("type", ""), field: source})
    return metrics


def _metrics(targets: list[JSONObject], current: list[JSONObject]) -> str:
    if not targets:
        return "<none>"
    texts = [_metric(one, current[at] if at < len(current) else {}) for at, one in enumerate(targets)]
    shown = ", ".join(texts[:2])
    return f"{shown} + {len(texts) - 2} more..." if len(texts) > 2 else shown


def _metric(metric: JSONObject, current: JSONObject) -> str:
    field = _METRIC_FIELDS.get(metric.get("type", ""))
    if field is None:
        return "<unknown type>"
    source, target = part(metric, field), part(metric, field, "target")
    now = part(current, field, "current")
    if field in ("resource", "containerResource"):
        name = source.get("name", "")
        if target.get("averageValue") is not None:
            return f"{name}: {now.get('averageValue', _UNKNOWN)}/{target['averageValue']}"
        used, limit = now.get("averageUtilization"), target.get("averageUtilization")
        shown = _UNKNOWN if used is None else f"{used}%"
        return f"{name}: {shown}/{'<auto>' if limit is None else f'{limit}%'}"
    if field == "pods":
        return f"{now.get('averageValue', _UNKNOWN)}/{target.get('averageValue', '0')}"
    if target.get("averageValue") is not None:
        return f"{now.get('averageValue', _UNKNOWN)}/{target['averageValue']} (avg)"
    return f"{now.get('value', _UNKNOWN)}/{target.get('value', '0')}"


AUTOSCALING: Final[dict[str, Layout]] = {
    "horizontalpodautoscalers.autoscaling": layout("Name | Reference | Targets | MinPods | MaxPods | Replicas | Age", _autoscaler),
}
