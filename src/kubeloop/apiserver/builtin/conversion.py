"""Horizontal pod autoscalers in their two versions. Source: pkg/apis/autoscaling/v1/conversion.go."""

from __future__ import annotations

import json
from typing import Any

JSONObject = dict[str, Any]

_METRICS = "autoscaling.alpha.kubernetes.io/metrics"
_CURRENT_METRICS = "autoscaling.alpha.kubernetes.io/current-metrics"
_CONDITIONS = "autoscaling.alpha.kubernetes.io/conditions"
_BEHAVIOR = "autoscaling.alpha.kubernetes.io/behavior"
_ANNOTATIONS = (_METRICS, _CURRENT_METRICS, _CONDITIONS, _BEHAVIOR)


def convert_autoscaler(obj: JSONObject, to: str) -> JSONObject:
    """``to``: ``v1`` or ``v2``. What v1 has no fields for travels in annotations, so nothing is lost on the way and back."""
    here = str(obj.get("apiVersion", "")).rpartition("/")[2]
    to = to.rpartition("/")[2]
    if here == to:
        return obj
    return _autoscaler_to_v1(obj) if to == "v1" else _autoscaler_to_v2(obj)


def _autoscaler_to_v1(obj: JSONObject) -> JSONObject:
    metadata = {**obj["metadata"]}
    annotations = dict(metadata.get("annotations") or {})
    spec, status = {**obj.get("spec", {})}, {**(obj.get("status") or {})}
    metrics = spec.pop("metrics", None) or []
    others = []
    for metric in metrics:
        target = (metric.get("resource") or {}).get("target") or {}
        plain = (
            metric.get("type") == "Resource" and metric["resource"].get("name") == "cpu" and target.get("averageUtilization") is not None
        )
        if plain and "targetCPUUtilizationPercentage" not in spec:
            spec["targetCPUUtilizationPercentage"] = target["averageUtilization"]
        else:
            others.append(metric)
    if others:
        annotations[_METRICS] = _dump(others)
    if (behavior := spec.pop("behavior", None)) is not None:
        annotations[_BEHAVIOR] = _dump(behavior)
    current = status.pop("currentMetrics", None) or []
    for metric in current:
        resource = metric.get("resource") or {}
        if metric.get("type") == "Resource" and resource.get("name") == "cpu":
            used = (resource.get("current") or {}).get("averageUtilization")
            if used is not None:
                status["currentCPUUtilizationPercentage"] = used
    if current:
        annotations[_CURRENT_METRICS] = _dump(current)
    if conditions := status.pop("conditions", None):
        annotations[_CONDITIONS] = _dump(conditions)
    if annotations:
        metadata["annotations"] = annotations
    status.setdefault("currentReplicas", 0)
    status.setdefault("desiredReplicas", 0)
    return {**obj, "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def _autoscaler_to_v2(obj: JSONObject) -> JSONObject:
    metadata = {**obj["metadata"]}
    annotations = dict(metadata.get("annotations") or {})
    spec, status = {**obj.get("spec", {})}, {**(obj.get("status") or {})}
    metrics = _load(annotations.get(_METRICS), [])
    if (percentage := spec.pop("targetCPUUtilizationPercentage", None)) is not None:
        target = {"type": "Utilization", "averageUtilization": percentage}
        metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}, *metrics]
    if metrics:
        spec["metrics"] = metrics
    if (behavior := _load(annotations.get(_BEHAVIOR), None)) is not None:
        spec["behavior"] = behavior
    used = status.pop("currentCPUUtilizationPercentage", None)
    current = _load(annotations.get(_CURRENT_METRICS), [])
    if used is not None and not current:
        current = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": used}}}]
    status["currentMetrics"] = current or None
    if conditions := _load(annotations.get(_CONDITIONS), None):
        status["conditions"] = conditions
    kept = {name: value for name, value in annotations.items() if name not in _ANNOTATIONS}
    metadata.pop("annotations", None)
    if kept:
        metadata["annotations"] = kept
    return {**obj, "apiVersion": "autoscaling/v2", "metadata": metadata, "spec": spec, "status": status}


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _load(text: str | None, otherwise: Any) -> Any:
    """A broken annotation counts as none, as upstream has it."""
    if text is None:
        return otherwise
    try:
        return json.loads(text)
    except ValueError:
        return otherwise
