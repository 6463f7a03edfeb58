"""Tables of workloads. Source: kubernetes pkg/printers/internalversion."""

from __future__ import annotations

from typing import Any, Final

from kubeloop.apiserver.tables.layout import (
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

#: By "RESOURCE.GROUP".
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
