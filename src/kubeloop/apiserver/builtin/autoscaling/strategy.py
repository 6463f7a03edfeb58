"""Strategy of HorizontalPodAutoscalers in both versions. Source: ValidateHorizontalPodAutoscaler, pkg/registry/autoscaling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.conversion import convert_autoscaler
from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.networking.ingress import validate_kind_and_name
from kubeloop.apiserver.builtin.pods.resources import validate_container_resource_name
from kubeloop.apiserver.builtin.quantities import quantity
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import NOT_NEGATIVE, check_not_negative, check_one_of, each, validate_dns_label_field
from kubeloop.meta.field_error import Errors, FieldError, forbidden, invalid, required
from kubeloop.meta.names import path_segment
from kubeloop.types import JSONObject

# Scaling behavior. Source: validateBehavior.


#: Maximum period of a policy and maximum stabilization window, in seconds.
_LONGEST_PERIOD = 1800
_LONGEST_WINDOW = 3600


def validate_behavior(path: str, value: JSONObject) -> Errors:
    """Validate the scaling behavior."""
    for name in ("scaleUp", "scaleDown"):
        if value.get(name) is not None:
            yield from _rules(f"{path}.{name}", value[name])


def _rules(path: str, rules: JSONObject) -> Errors:
    window, policies = rules.get("stabilizationWindowSeconds"), rules.get("policies") or []
    if window is not None and window < 0:
        yield invalid(f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero")
    if window is not None and window > _LONGEST_WINDOW:
        yield invalid(f"{path}.stabilizationWindowSeconds", window, f"must be less than or equal to {_LONGEST_WINDOW}")
    if rules.get("selectPolicy") is not None:
        yield from check_one_of(f"{path}.selectPolicy", rules["selectPolicy"], ("Disabled", "Max", "Min"))
    if not policies:
        yield required(f"{path}.policies", "must specify at least one Policy")
    for index, policy in enumerate(policies):
        yield from _policy(f"{path}.policies[{index}]", policy)
    if rules.get("tolerance") is not None and quantity(rules["tolerance"]) < 0:
        yield invalid(f"{path}.tolerance", rules["tolerance"], NOT_NEGATIVE)


def _policy(path: str, policy: JSONObject) -> Errors:
    yield from check_one_of(f"{path}.type", policy.get("type", ""), ("Percent", "Pods"))
    value, period = policy.get("value", 0), policy.get("periodSeconds", 0)
    if value <= 0:
        yield invalid(f"{path}.value", value, "must be greater than zero")
    if period <= 0:
        yield invalid(f"{path}.periodSeconds", period, "must be greater than zero")
    if period > _LONGEST_PERIOD:
        yield invalid(f"{path}.periodSeconds", period, f"must be less than or equal to {_LONGEST_PERIOD}")


# The scaled object and the metrics. Source: validateMetrics, ValidateCrossVersionObjectReference.


#: Fields in upstream's order, with the types of metric that need them.
_SOURCES = {"object": "Object", "external": "External", "pods": "Pods", "resource": "Resource", "containerResource": "ContainerResource"}
_TYPES = ("ContainerResource", "External", "Object", "Pods", "Resource")
_RAW_OR_USED = "must set either a target raw value or a target utilization"


def validate_scaled_object(path: str, reference: JSONObject, *, core: bool, any_version: bool) -> Errors:
    """Validate the reference to the scaled object.

    Args:
        path: Path of the reference.
        reference: A CrossVersionObjectReference.
        core: The object may be in the core group.
        any_version: Skip the API version, because the stored object may have an invalid one.

    Returns:
        The errors.
    """
    yield from validate_kind_and_name(path, reference)
    if not any_version and (error := api_version_error(reference, core=core)):
        yield invalid(f"{path}.apiVersion", reference.get("apiVersion", ""), error)


def api_version_error(reference: JSONObject, *, core: bool) -> str:
    """Return why the API version of a reference is invalid, or an empty text if it is valid."""
    text = reference.get("apiVersion", "")
    if text.count("/") > 1:
        return f"unexpected GroupVersion string: {text}"
    return "" if core or (text.partition("/")[1] and text.partition("/")[0]) else "apiVersion must specify API group"


def validate_metrics(path: str, value: list[JSONObject], minimum: int | None, *, any_version: bool) -> Errors:
    """Validate the metrics.

    Args:
        path: Path of the list.
        value: The metrics.
        minimum: minReplicas of the autoscaler; 0 needs an object or external metric.
        any_version: Skip API versions of references.

    Returns:
        The errors.
    """
    for index, metric in enumerate(value):
        yield from _metric(f"{path}[{index}]", metric, any_version)
    if minimum == 0 and not any(metric.get("type") in ("Object", "External") for metric in value):
        yield forbidden(path, "must specify at least one Object or External metric to support scaling to zero replicas")


def _metric(path: str, metric: JSONObject, any_version: bool) -> Errors:
    kind = metric.get("type", "")
    if not kind:
        yield required(f"{path}.type", "must specify a metric source type")
    yield from check_one_of(f"{path}.type", kind, _TYPES)
    present = [name for name in _SOURCES if metric.get(name) is not None]
    for name in present[:1]:
        yield from _source(f"{path}.{name}", name, metric[name], any_version)
    expected = next((name for name, requested in _SOURCES.items() if requested == kind), "")
    if not expected:
        yield from check_one_of(f"{path}.type", kind, _TYPES)
    elif expected not in present:
        yield required(f"{path}.{expected}", "must populate information for the given metric source")
    if len(present) != 1:
        for name in present:
            if name != expected:
                yield forbidden(f"{path}.{name}", "must populate the given metric source only")


def _source(path: str, name: str, source: JSONObject, any_version: bool) -> Errors:
    target = source.get("target") or {}
    if name == "object":
        yield from validate_scaled_object(
            f"{path}.describedObject", source.get("describedObject") or {}, core=True, any_version=any_version
        )
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
        yield from validate_container_resource_name(f"{path}.name", name)
    if not checked:
        return
    if not source.get("container"):
        yield required(f"{path}.container", "must specify a container")
    else:
        yield from validate_dns_label_field(f"{path}.container", source["container"])


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


class AutoscalerStrategy(BuiltinStrategy):
    """Strategy of HorizontalPodAutoscalers. It validates every version as v2, and accepts invalid references that are already stored."""

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_spec(_as_sent(_newest(obj), context.sent), None, any_object=False))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        before = _newest(old)
        described = [(one.get("object") or {}).get("describedObject") or {} for one in before.get("metrics") or ()]
        any_object = any(api_version_error(one, core=True) for one in described)
        return list(_spec(_as_sent(_newest(obj), context.sent), before, any_object=any_object))

    def prepare_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        super().prepare_status_update(context, obj, old)
        # Upstream's internal type is that of v2, whose list of current metrics v1 has as an annotation.
        if obj.get("apiVersion") == "autoscaling/v1":
            obj.update(convert_autoscaler(convert_autoscaler(obj, "v2"), "v1"))

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        status = obj.get("status") or {}
        names = ("currentReplicas", "desiredReplicas")
        return [error for name in names for error in check_not_negative(f"status.{name}", status.get(name))]


def _newest(obj: JSONObject) -> JSONObject:
    spec: JSONObject = convert_autoscaler(obj, "v2").get("spec") or {}
    return spec


def _as_sent(spec: JSONObject, sent: Any) -> JSONObject:
    """Return the spec with the empty policies of the request body: an empty list is invalid, and an absent one gets defaults."""
    behaviors = spec.get("behavior")
    sent_behavior = (sent.get("spec") or {}).get("behavior") if isinstance(sent, dict) else None
    if not behaviors or not sent_behavior:
        return spec
    none = {name: rules | {"policies": []} for name, rules in behaviors.items() if (sent_behavior.get(name) or {}).get("policies") == []}
    return spec | {"behavior": behaviors | none}


def _spec(spec: JSONObject, old: JSONObject | None, *, any_object: bool) -> Iterator[FieldError]:
    minimum, maximum = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    lowest = 0 if old is not None and old.get("minReplicas") == 0 else 1
    if minimum is not None and minimum < lowest:
        yield invalid("spec.minReplicas", minimum, f"must be greater than or equal to {lowest}")
    if maximum == 0:
        yield required("spec.maxReplicas", "must be set and greater than 0")
    elif maximum < 0:
        yield invalid("spec.maxReplicas", maximum, "must be greater than or equal to 1")
    if minimum is not None and maximum < minimum:
        yield invalid("spec.maxReplicas", maximum, "must be greater than or equal to `minReplicas`")
    target, before = spec.get("scaleTargetRef") or {}, (old or {}).get("scaleTargetRef") or {}
    retained = old is not None and all(target.get(name, "") == before.get(name, "") for name in ("apiVersion", "kind"))
    # The only scalable kind of the core group.
    core = target.get("kind") == "ReplicationController"
    yield from validate_scaled_object("spec.scaleTargetRef", target, core=core, any_version=retained)
    yield from validate_metrics("spec.metrics", spec.get("metrics") or [], minimum, any_version=any_object)
    yield from validate_behavior("spec.behavior", spec.get("behavior") or {})
