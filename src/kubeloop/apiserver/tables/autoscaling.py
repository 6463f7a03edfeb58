"""The Table of horizontal pod autoscalers: current and wanted values of their metrics.

Source: kubernetes pkg/printers/internalversion formatHPAMetrics.
"""

from __future__ import annotations

import json
from typing import Any, Final

from kubeloop.apiserver.tables.layout import JSONObject, Layout, age_of, layout, name_of, part

_FIELDS: Final = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
_V1: Final = "autoscaling.alpha.kubernetes.io/"
_UNKNOWN: Final = "<unknown>"


def _cells(obj: JSONObject, now: float) -> list[Any]:
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
    """Wanted and current metrics; autoscaling/v1 has a field for CPU, and annotations for all others."""
    spec, status = part(obj, "spec"), part(obj, "status")
    annotations = obj["metadata"].get("annotations") or {}
    return (
        spec.get("metrics") or _of_v1(spec.get("targetCPUUtilizationPercentage"), "target", annotations.get(f"{_V1}metrics")),
        status.get("currentMetrics")
        or _of_v1(status.get("currentCPUUtilizationPercentage"), "current", annotations.get(f"{_V1}current-metrics")),
    )


def _of_v1(percentage: int | None, below: str, annotation: str | None) -> list[JSONObject]:
    found: list[JSONObject] = []
    if percentage is not None:
        found.append({"type": "Resource", "resource": {"name": "cpu", below: {"averageUtilization": percentage}}})
    try:
        others = json.loads(annotation or "[]")
    except ValueError:
        return found
    for other in others if isinstance(others, list) else []:
        field = _FIELDS.get(other.get("type", ""), "")
        source = dict(part(other, field))
        source[below] = {
            name: source.get(f"{below}{name[:1].upper()}{name[1:]}") for name in ("averageValue", "averageUtilization", "value")
        }
        source[below] = {name: value for name, value in source[below].items() if value is not None}
        found.append({"type": other.get("type", ""), field: source})
    return found


def _metrics(wanted: list[JSONObject], current: list[JSONObject]) -> str:
    if not wanted:
        return "<none>"
    texts = [_metric(one, current[at] if at < len(current) else {}) for at, one in enumerate(wanted)]
    shown = ", ".join(texts[:2])
    return f"{shown} + {len(texts) - 2} more..." if len(texts) > 2 else shown


def _metric(wanted: JSONObject, current: JSONObject) -> str:
    field = _FIELDS.get(wanted.get("type", ""))
    if field is None:
        return "<unknown type>"
    source, target = part(wanted, field), part(wanted, field, "target")
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
    "horizontalpodautoscalers.autoscaling": layout("Name | Reference | Targets | MinPods | MaxPods | Replicas | Age", _cells),
}
