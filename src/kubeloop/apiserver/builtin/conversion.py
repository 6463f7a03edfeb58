"""Converts Events between their two groups, and HorizontalPodAutoscalers between their two versions.

Source: pkg/apis/autoscaling/v1/conversion.go.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from kubeloop.apiserver.builtin.autoscaling.older_metrics import (
    behavior_to_v1,
    behavior_to_v2,
    condition_in_order,
    metric_to_v1,
    metric_to_v2,
    status_to_v1,
    status_to_v2,
)
from kubeloop.meta.errors import DecodeError
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema.strict import conform
from kubeloop.types import JSONObject

# Events are in the core group and in events.k8s.io, under different field names; both are the same stored object.
#
# Source: k8s.io/kubernetes pkg/apis/events/v1/conversion.go, pkg/apis/core/v1.


#: Name in the core group -> name in events.k8s.io. Other names are equal.
_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_BACK = {there: here for here, there in _NAMES.items()}
#: Fields that Go's types always write, also when they are empty.
_ALWAYS: dict[str, JSONObject] = {
    "v1": {
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "reportingComponent": "",
        "reportingInstance": "",
    },
    "events.k8s.io/v1": {"regarding": {}, "deprecatedSource": {}, "deprecatedFirstTimestamp": None, "deprecatedLastTimestamp": None},
}


def convert_event(obj: JSONObject, to: str) -> JSONObject:
    """Convert an event to the API version ``to``: ``v1`` or ``events.k8s.io/v1``."""
    if obj.get("apiVersion") == to:
        return obj
    names = _BACK if to == "v1" else _NAMES
    converted: JSONObject = {"kind": "Event", "apiVersion": to, "metadata": obj["metadata"]}
    for name, value in obj.items():
        if name not in converted:
            converted[names.get(name, name)] = value
    for name, value in _ALWAYS[to].items():
        converted.setdefault(name, value)
    if to != "v1":
        for name in ("reportingInstance", "reportingController"):
            if not converted.get(name):
                converted.pop(name, None)
    return converted


_V2 = GroupVersionKind("autoscaling", "v2", "HorizontalPodAutoscaler")

#: Default target of a v1 autoscaler without metrics, which v1 shows only after a conversion.
_DEFAULT_METRIC = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}

_METRICS = "autoscaling.alpha.kubernetes.io/metrics"
_CURRENT_METRICS = "autoscaling.alpha.kubernetes.io/current-metrics"
_CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"
_BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
_ANNOTATIONS = (_METRICS, _CURRENT_METRICS, _CONDITIONS, _BEHAVIOR)


def convert_autoscaler(obj: JSONObject, to: str) -> JSONObject:
    """Convert an autoscaler to ``v1`` or ``v2``. Fields that v1 lacks become annotations, so that no field is lost."""
    here = str(obj.get("apiVersion", "")).rpartition("/")[2]
    to = to.rpartition("/")[2]
    if here == to:
        return obj
    return _autoscaler_to_v1(obj) if to == "v1" else _autoscaler_to_v2(obj)


def _autoscaler_to_v1(obj: JSONObject) -> JSONObject:
    metadata = {**obj["metadata"]}
    annotations = {name: value for name, value in (metadata.pop("annotations", None) or {}).items() if name not in _ANNOTATIONS}
    spec, status = {**obj.get("spec", {})}, {**(obj.get("status") or {})}
    metrics, current = spec.pop("metrics", None) or [], status.pop("currentMetrics", None) or []
    utilizations = [metric["resource"]["target"]["averageUtilization"] for metric in metrics if _is_cpu_utilization(metric)]
    if utilizations:
        spec["targetCPUUtilizationPercentage"] = utilizations[0]
    if others := [metric_to_v1(metric) for metric in metrics if not _is_cpu_utilization(metric)]:
        annotations[_METRICS] = _dump(others)
    if (behavior := spec.pop("behavior", None)) is not None:
        annotations[_BEHAVIOR] = _dump(behavior_to_v1(behavior))
    for metric in current:
        resource = metric.get("resource") or {}
        used = (resource.get("current") or {}).get("averageUtilization")
        if metric.get("type") == "Resource" and resource.get("name") == "cpu" and used is not None:
            status["currentCPUUtilizationPercentage"] = used
    if current:
        annotations[_CURRENT_METRICS] = _dump([status_to_v1(metric) for metric in current])
    if conditions := status.pop("conditions", None):
        annotations[_CONDITIONS] = _dump([condition_in_order(one) for one in conditions])
    if annotations:
        metadata["annotations"] = annotations
    status.setdefault("currentReplicas", 0)
    status.setdefault("desiredReplicas", 0)
    return {**obj, "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def _is_cpu_utilization(metric: JSONObject) -> bool:
    """Return whether v1 has a field for the metric."""
    resource = metric.get("resource") or {}
    target = resource.get("target") or {}
    return metric.get("type") == "Resource" and resource.get("name") == "cpu" and target.get("averageUtilization") is not None


def _autoscaler_to_v2(obj: JSONObject) -> JSONObject:
    metadata = {**obj["metadata"]}
    annotations = metadata.pop("annotations", None) or {}
    spec, status = {**obj.get("spec", {})}, {**(obj.get("status") or {})}
    metrics = _read(annotations, _METRICS, "spec", "metrics", _each(metric_to_v2)) or []
    if (percentage := spec.pop("targetCPUUtilizationPercentage", None)) is not None:
        target = {"type": "Utilization", "averageUtilization": percentage}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    spec["metrics"] = metrics or [copy.deepcopy(_DEFAULT_METRIC)]
    if behavior := _read(annotations, _BEHAVIOR, "spec", "behavior", behavior_to_v2):
        spec["behavior"] = behavior
    used = status.pop("currentCPUUtilizationPercentage", None)
    current = _read(annotations, _CURRENT_METRICS, "status", "currentMetrics", _each(status_to_v2))
    if used is not None and not current:
        current = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": used}}}]
    status["currentMetrics"] = current or None
    if conditions := _read(annotations, _CONDITIONS, "status", "conditions", _each(condition_in_order)):
        status["conditions"] = conditions
    if not status.get("currentReplicas"):
        status.pop("currentReplicas", None)  # v2 leaves zero out, and v1 does not
    if retained := {name: value for name, value in annotations.items() if name not in _ANNOTATIONS}:
        metadata["annotations"] = retained
    return {**obj, "apiVersion": "autoscaling/v2", "metadata": metadata, "spec": spec, "status": status}


def _each(form: Callable[[JSONObject], JSONObject]) -> Callable[[Any], list[JSONObject]]:
    return lambda value: [form(one) for one in value]


def _read(annotations: dict[str, str], name: str, part: str, field: str, form: Callable[[Any], Any]) -> Any:
    """Return the content of an annotation in v2, or None if it is invalid, as upstream does.

    Args:
        annotations: Annotations of the v1 object.
        name: Key of the annotation.
        part: ``spec`` or ``status``.
        field: Field of the part in v2.
        form: Converts the decoded JSON.
    """
    text = annotations.get(name)
    if text is None:
        return None
    try:
        return conform({part: {field: form(json.loads(text))}}, _V2).obj[part].get(field)
    except (ValueError, RecursionError, AttributeError, TypeError, DecodeError):
        return None  # not JSON, or not of the expected shape


def _dump(value: Any) -> str:
    """Encode a value as Go does."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
