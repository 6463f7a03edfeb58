"""What an autoscaler scales and by which measures. Source: validateMetrics, ValidateCrossVersionObjectReference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.networking.references import kind_and_name
from kubeloop.apiserver.builtin.pods.resources import container_resource_name
from kubeloop.apiserver.builtin.quantities import quantity
from kubeloop.apiserver.validation.formats import each, label_name_field, one_of
from kubeloop.meta.field_error import FieldError, forbidden, invalid, required
from kubeloop.meta.names import path_segment

JSONObject = dict[str, Any]
Errors = Iterator[FieldError]

#: Fields in upstream's order, with the types that need them.
_SOURCES = {"object": "Object", "external": "External", "pods": "Pods", "resource": "Resource", "containerResource": "ContainerResource"}
_TYPES = ("ContainerResource", "External", "Object", "Pods", "Resource")
_RAW_OR_USED = "must set either a target raw value or a target utilization"


def scaled_object(path: str, reference: JSONObject, *, core: bool, any_version: bool) -> Errors:
    """``core``: the object may be of the group without a name."""
    yield from kind_and_name(path, reference)
    if not any_version and (fault := api_version_fault(reference, core=core)):
        yield invalid(f"{path}.apiVersion", reference.get("apiVersion", ""), fault)


def api_version_fault(reference: JSONObject, *, core: bool) -> str:
    """What is wrong with the version that a reference names; empty when nothing is."""
    text = reference.get("apiVersion", "")
    if text.count("/") > 1:
        return f"unexpected GroupVersion string: {text}"
    return "" if core or (text.partition("/")[1] and text.partition("/")[0]) else "apiVersion must specify API group"


def metrics(path: str, found: list[JSONObject], least: int | None, *, any_version: bool) -> Errors:
    for at, metric in enumerate(found):
        yield from _metric(f"{path}[{at}]", metric, any_version)
    if least == 0 and not any(metric.get("type") in ("Object", "External") for metric in found):
        yield forbidden(path, "must specify at least one Object or External metric to support scaling to zero replicas")


def _metric(path: str, metric: JSONObject, any_version: bool) -> Errors:
    kind = metric.get("type", "")
    if not kind:
        yield required(f"{path}.type", "must specify a metric source type")
    yield from one_of(f"{path}.type", kind, _TYPES)
    present = [name for name in _SOURCES if metric.get(name) is not None]
    for name in present[:1]:
        yield from _source(f"{path}.{name}", name, metric[name], any_version)
    expected = next((name for name, wanted in _SOURCES.items() if wanted == kind), "")
    if not expected:
        yield from one_of(f"{path}.type", kind, _TYPES)
    elif expected not in present:
        yield required(f"{path}.{expected}", "must populate information for the given metric source")
    if len(present) != 1:
        for name in present:
            if name != expected:
                yield forbidden(f"{path}.{name}", "must populate the given metric source only")


def _source(path: str, name: str, source: JSONObject, any_version: bool) -> Errors:
    target = source.get("target") or {}
    if name == "object":
        yield from scaled_object(f"{path}.describedObject", source.get("describedObject") or {}, core=True, any_version=any_version)
    if name in ("resource", "containerResource"):
        yield from _resource_name(path, source, checked=name == "containerResource")
    else:
        yield from _identifier(f"{path}.metric", source.get("metric") or {})
    yield from _target(f"{path}.target", target)
    raw, average, used = (target.get(one) is not None for one in ("value", "averageValue", "averageUtilization"))
    if name == "object" and not raw and not average:
        yield required(f"{path}.target.averageValue", "must set either a target value or averageValue")
    elif name == "external" and not raw and not average:
        yield required(f"{path}.target.averageValue", "must set either a target value for metric or a per-pod target")
    elif name == "external" and raw and average:
        yield forbidden(f"{path}.target.value", "may not set both a target value for metric and a per-pod target")
    elif name == "pods" and not average:
        yield required(f"{path}.target.averageValue", "must specify a positive target averageValue")
    elif name in ("resource", "containerResource") and not average and not used:
        yield required(f"{path}.target.averageUtilization", _RAW_OR_USED)
    elif name in ("resource", "containerResource") and average and used:
        yield forbidden(f"{path}.target.averageValue", "may not set both a target raw value and a target utilization")


def _resource_name(path: str, source: JSONObject, *, checked: bool) -> Errors:
    name = source.get("name", "")
    if not name:
        yield required(f"{path}.name", "must specify a resource name")
    elif checked:
        yield from container_resource_name(f"{path}.name", name)
    if not checked:
        return
    if not source.get("container"):
        yield required(f"{path}.container", "must specify a container")
    else:
        yield from label_name_field(f"{path}.container", source["container"])


def _identifier(path: str, identifier: JSONObject) -> Errors:
    name = identifier.get("name", "")
    if not name:
        yield required(f"{path}.name", "must specify a metric name")
    else:
        yield from each(f"{path}.name", name, path_segment(name))


def _target(path: str, target: JSONObject) -> Errors:
    kind, used = target.get("type", ""), target.get("averageUtilization")
    if not kind:
        yield required(f"{path}.type", "must specify a metric target type")
    if kind not in ("Utilization", "Value", "AverageValue"):
        yield invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue")
    for name in ("value", "averageValue"):
        if target.get(name) is not None and quantity(target[name]) <= 0:
            yield invalid(f"{path}.{name}", target[name], "must be positive")
    if used is not None and used < 1:
        yield invalid(f"{path}.averageUtilization", used, "must be greater than 0")
