"""Converts metrics, conditions and behavior to and from the annotations of autoscaling/v1, with fields in Go's order.

Source: pkg/apis/autoscaling/v1/conversion.go, k8s.io/api autoscaling/v1 types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeloop.types import JSONObject

_Form = Callable[[JSONObject], JSONObject]

#: Type of a metric -> the field that describes it.
_FIELDS = {"Object": "object", "Pods": "pods", "Resource": "resource", "ContainerResource": "containerResource", "External": "external"}
_CONDITION = ("type", "status", "lastTransitionTime", "reason", "message")
_RULES = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")


def metric_to_v1(metric: JSONObject) -> JSONObject:
    """Convert a metric of a spec from v2 to v1."""
    return _converted(metric, _TARGETS_TO_V1)


def metric_to_v2(metric: JSONObject) -> JSONObject:
    """Convert a metric of a spec from v1 to v2."""
    return _converted(metric, _TARGETS_TO_V2)


def status_to_v1(metric: JSONObject) -> JSONObject:
    """Convert a metric of a status from v2 to v1."""
    return _converted(metric, _CURRENT_TO_V1)


def status_to_v2(metric: JSONObject) -> JSONObject:
    """Convert a metric of a status from v1 to v2."""
    return _converted(metric, _CURRENT_TO_V2)


def condition_in_order(condition: JSONObject) -> JSONObject:
    """Return a condition with its fields in Go's order."""
    return _only({name: condition.get(name) for name in _CONDITION})


def behavior_to_v1(behavior: JSONObject) -> JSONObject:
    """Convert behavior from v2 to upstream's internal type, which the annotation contains with Go's field names."""
    return {"ScaleUp": _rules_to_v1(behavior.get("scaleUp")), "ScaleDown": _rules_to_v1(behavior.get("scaleDown"))}


def behavior_to_v2(behavior: JSONObject) -> JSONObject:
    """Convert behavior from the annotation to v2. Names match in any case, as in Go, and null values are dropped."""
    lower = {name[:1].lower() + name[1:]: rules for name, rules in behavior.items() if rules is not None}
    return {name: _rules_to_v2(rules) for name, rules in lower.items()}


def _rules_to_v1(rules: JSONObject | None) -> JSONObject | None:
    if rules is None:
        return None
    shown = {_upper(name): rules.get(name) for name in _RULES}
    if shown["Policies"] is not None:
        shown["Policies"] = [{_upper(name): one.get(name) for name in ("type", "value", "periodSeconds")} for one in shown["Policies"]]
    return shown


def _rules_to_v2(rules: JSONObject) -> JSONObject:
    result = _only({name[:1].lower() + name[1:]: value for name, value in rules.items()})
    if "policies" in result:
        result["policies"] = [{name[:1].lower() + name[1:]: value for name, value in one.items()} for one in result["policies"]]
    return result


def _upper(name: str) -> str:
    return name[:1].upper() + name[1:]


def _only(fields: JSONObject) -> JSONObject:
    return {name: value for name, value in fields.items() if value is not None}


def _converted(metric: JSONObject, forms: dict[str, _Form]) -> JSONObject:
    result: JSONObject = {"type": metric.get("type", "")}
    for kind, field in _FIELDS.items():
        if metric.get(field) is not None:
            result[field] = _only(forms[kind](metric[field]))
    return result


def _reference(of: JSONObject | None) -> JSONObject:
    of = of or {}
    return _only({"kind": of.get("kind", ""), "name": of.get("name", ""), "apiVersion": of.get("apiVersion")})


def _metric(name: Any, selector: Any) -> JSONObject:
    return _only({"name": name or "", "selector": selector})


def _target(kind: str, **values: Any) -> JSONObject:
    return _only({"type": kind, **values})


def _object_to_v1(of: JSONObject) -> JSONObject:
    target, metric = of.get("target") or {}, of.get("metric") or {}
    return {
        "target": _reference(of.get("describedObject")),
        "metricName": metric.get("name", ""),
        "targetValue": target.get("value") or "0",
        "selector": metric.get("selector"),
        "averageValue": target.get("averageValue"),
    }


def _object_to_v2(of: JSONObject) -> JSONObject:
    value, average = of.get("targetValue", "0"), of.get("averageValue")
    retained = value if average is None or value != "0" else None
    return {
        "describedObject": _reference(of.get("target")),
        "target": _target("Value" if average is None else "AverageValue", value=retained, averageValue=average),
        "metric": _metric(of.get("metricName"), of.get("selector")),
    }


def _pods_to_v1(of: JSONObject) -> JSONObject:
    metric = of.get("metric") or {}
    average = (of.get("target") or {}).get("averageValue") or "0"
    return {"metricName": metric.get("name", ""), "targetAverageValue": average, "selector": metric.get("selector")}


def _pods_to_v2(of: JSONObject) -> JSONObject:
    target = _target("AverageValue", averageValue=of.get("targetAverageValue", "0"))
    return {"metric": _metric(of.get("metricName"), of.get("selector")), "target": target}


def _resource_to_v1(of: JSONObject) -> JSONObject:
    target = of.get("target") or {}
    values = {"targetAverageUtilization": target.get("averageUtilization"), "targetAverageValue": target.get("averageValue")}
    return {"name": of.get("name", ""), **values, "container": of.get("container")}


def _resource_to_v2(of: JSONObject) -> JSONObject:
    utilization, average = of.get("targetAverageUtilization"), of.get("targetAverageValue")
    kind = "AverageValue" if utilization is None else "Utilization"
    target = _target(kind, averageValue=average, averageUtilization=utilization)
    return {"name": of.get("name", ""), "container": of.get("container"), "target": target}


def _external_to_v1(of: JSONObject) -> JSONObject:
    target, metric = of.get("target") or {}, of.get("metric") or {}
    values = {"targetValue": target.get("value"), "targetAverageValue": target.get("averageValue")}
    return {"metricName": metric.get("name", ""), "metricSelector": metric.get("selector"), **values}


def _external_to_v2(of: JSONObject) -> JSONObject:
    value, average = of.get("targetValue"), of.get("targetAverageValue")
    target = _target("AverageValue" if value is None else "Value", value=value, averageValue=average)
    return {"metric": _metric(of.get("metricName"), of.get("metricSelector")), "target": target}


_TARGETS_TO_V1: dict[str, _Form] = {
    "Object": _object_to_v1,
    "Pods": _pods_to_v1,
    "Resource": _resource_to_v1,
    "ContainerResource": _resource_to_v1,
    "External": _external_to_v1,
}
_TARGETS_TO_V2: dict[str, _Form] = {
    "Object": _object_to_v2,
    "Pods": _pods_to_v2,
    "Resource": _resource_to_v2,
    "ContainerResource": _resource_to_v2,
    "External": _external_to_v2,
}


def _object_status_to_v1(of: JSONObject) -> JSONObject:
    current, metric = of.get("current") or {}, of.get("metric") or {}
    return {
        "target": _reference(of.get("describedObject")),
        "metricName": metric.get("name", ""),
        "currentValue": current.get("value") or "0",
        "selector": metric.get("selector"),
        "averageValue": current.get("averageValue"),
    }


def _object_status_to_v2(of: JSONObject) -> JSONObject:
    return {
        "metric": _metric(of.get("metricName"), of.get("selector")),
        "current": _only({"value": of.get("currentValue", "0"), "averageValue": of.get("averageValue")}),
        "describedObject": _reference(of.get("target")),
    }


def _pods_status_to_v1(of: JSONObject) -> JSONObject:
    metric = of.get("metric") or {}
    average = (of.get("current") or {}).get("averageValue") or "0"
    return {"metricName": metric.get("name", ""), "currentAverageValue": average, "selector": metric.get("selector")}


def _pods_status_to_v2(of: JSONObject) -> JSONObject:
    metric = _metric(of.get("metricName"), of.get("selector"))
    return {"metric": metric, "current": {"averageValue": of.get("currentAverageValue", "0")}}


def _resource_status_to_v1(of: JSONObject) -> JSONObject:
    current = of.get("current") or {}
    return {
        "name": of.get("name", ""),
        "currentAverageUtilization": current.get("averageUtilization"),
        "currentAverageValue": current.get("averageValue") or "0",
        "container": of.get("container"),
    }


def _resource_status_to_v2(of: JSONObject) -> JSONObject:
    average, utilization = of.get("currentAverageValue", "0"), of.get("currentAverageUtilization")
    current = _only({"averageValue": average, "averageUtilization": utilization})
    return {"name": of.get("name", ""), "current": current, "container": of.get("container")}


def _external_status_to_v1(of: JSONObject) -> JSONObject:
    current, metric = of.get("current") or {}, of.get("metric") or {}
    return {
        "metricName": metric.get("name", ""),
        "metricSelector": metric.get("selector"),
        "currentValue": current.get("value") or "0",
        "currentAverageValue": current.get("averageValue"),
    }


def _external_status_to_v2(of: JSONObject) -> JSONObject:
    current = _only({"value": of.get("currentValue", "0"), "averageValue": of.get("currentAverageValue")})
    return {"metric": _metric(of.get("metricName"), of.get("metricSelector")), "current": current}


_CURRENT_TO_V1: dict[str, _Form] = {
    "Object": _object_status_to_v1,
    "Pods": _pods_status_to_v1,
    "Resource": _resource_status_to_v1,
    "ContainerResource": _resource_status_to_v1,
    "External": _external_status_to_v1,
}
_CURRENT_TO_V2: dict[str, _Form] = {
    "Object": _object_status_to_v2,
    "Pods": _pods_status_to_v2,
    "Resource": _resource_status_to_v2,
    "ContainerResource": _resource_status_to_v2,
    "External": _external_status_to_v2,
}
