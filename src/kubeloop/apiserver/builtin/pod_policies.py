"""Strategies of PriorityClasses, RuntimeClasses and PodDisruptionBudgets. Source: pkg/apis/{scheduling,node,policy}."""

from __future__ import annotations

from collections.abc import Iterator

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.options import PodOptions
from kubeloop.apiserver.builtin.pods.resources import validate_container_resources
from kubeloop.apiserver.builtin.pods.scheduling import validate_tolerations
from kubeloop.apiserver.builtin.pods.warnings import node_label_warnings
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import (
    check_at_most_100_percent,
    check_immutable,
    check_not_negative,
    check_one_of,
    validate_dns_label_field,
    validate_int_or_percent,
)
from kubeloop.apiserver.validation.metadata import validate_conditions, validate_label_selector, validate_labels
from kubeloop.meta.field_error import Errors, FieldError, duplicate, forbidden, invalid, required
from kubeloop.types import JSONObject

_HIGHEST = 1_000_000_000
_SYSTEM = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


class PriorityClassStrategy(BuiltinStrategy):
    """Strategy of PriorityClasses."""

    def counts_for_generation(self, obj: JSONObject) -> object:
        return None  # the generation is always 1

    def deletion_fault(self, name: str) -> str:
        return "this is a system priority class and cannot be deleted" if name in _SYSTEM else ""

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        name, value, result = obj["metadata"].get("name", ""), obj.get("value", 0), []
        if name.startswith("system-"):
            if error := _not_of_the_system(name, value, bool(obj.get("globalDefault"))):
                text = f"priority class names with 'system-' prefix are reserved for system use only. error: {error}"
                result.append(forbidden("metadata.name", text))
        elif value > _HIGHEST:
            result.append(forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST}"))
        if obj.get("preemptionPolicy") == "":
            result.append(required("preemptionPolicy"))
        elif obj.get("preemptionPolicy") is not None:
            result += check_one_of("preemptionPolicy", obj["preemptionPolicy"], ("PreemptLowerPriority", "Never"))
        return result

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        errors = []
        if obj.get("value", 0) != old.get("value", 0):
            errors.append(forbidden("value", "may not be changed in an update."))
        return errors + list(check_immutable("preemptionPolicy", obj.get("preemptionPolicy"), old.get("preemptionPolicy")))


def _not_of_the_system(name: str, value: int, default: bool) -> str:
    if name not in _SYSTEM:
        return f"{name} is not a known system priority class"
    if value != _SYSTEM[name]:
        return f"value of {name} PriorityClass must be {_SYSTEM[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if default else ""


class DisruptionBudgetStrategy(BuiltinStrategy):
    """Strategy of PodDisruptionBudgets, whose metadata has no rules beyond those of all kinds."""

    metadata_checks_on_update = ()
    metadata_checks_on_status = ()

    def _object_meta(self, obj: JSONObject, namespaced: bool) -> list[FieldError]:
        return []

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"], any_value=False))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"], any_value=bool(list(validate_label_selector("", old["spec"].get("selector"))))))

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        status = obj.get("status") or {}
        errors = list(validate_conditions("status.conditions", status.get("conditions") or []))
        for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
            errors += check_not_negative(f"status.{name}", status.get(name))
        return errors


def _spec(spec: JSONObject, *, any_value: bool) -> Iterator[FieldError]:
    minimum, maximum = spec.get("minAvailable"), spec.get("maxUnavailable")
    if minimum is not None and maximum is not None:
        yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
    for name, value in (("minAvailable", minimum), ("maxUnavailable", maximum)):
        if value is not None:
            yield from validate_int_or_percent(f"spec.{name}", value)
            yield from check_at_most_100_percent(f"spec.{name}", value)
    yield from validate_label_selector("spec.selector", spec.get("selector"), any_value=any_value)
    if spec.get("unhealthyPodEvictionPolicy") is not None:
        yield from check_one_of("spec.unhealthyPodEvictionPolicy", spec["unhealthyPodEvictionPolicy"], ("AlwaysAllow", "IfHealthyBudget"))


class RuntimeClassStrategy(BuiltinStrategy):
    """Strategy of RuntimeClasses."""

    metadata_checks_on_update = ("create", "update")

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_class(obj))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return [*_class(obj), *check_immutable("handler", obj.get("handler", ""), old.get("handler", ""))]

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        selector = (obj.get("scheduling") or {}).get("nodeSelector") or {}
        return list(node_label_warnings("scheduling.nodeSelector", selector))


def _class(obj: JSONObject) -> Errors:
    handler, overhead, scheduling = obj.get("handler", ""), obj.get("overhead"), obj.get("scheduling")
    if not handler:
        yield required("handler")
    else:
        yield from validate_dns_label_field("handler", handler)
    if overhead is not None:
        yield from validate_container_resources("overhead", {"limits": overhead.get("podFixed") or {}}, set(), PodOptions())
    if scheduling is not None:
        yield from validate_labels("scheduling.nodeSelector", scheduling.get("nodeSelector"))
        yield from _tolerations("scheduling.tolerations", scheduling.get("tolerations") or [])


def _tolerations(path: str, value: list[JSONObject]) -> Errors:
    yield from validate_tolerations(path, value)
    known: set[tuple[str, ...]] = set()
    for index, toleration in enumerate(value):
        key = tuple(toleration.get(name, "") for name in ("key", "operator", "value", "effect"))
        if key in known:
            yield duplicate(f"{path}[{index}]", _shown(toleration))
        known.add(key)


def _shown(toleration: JSONObject) -> JSONObject:
    """Format a toleration as Go does."""
    shown: JSONObject = {name: toleration.get(name.lower(), "") for name in ("Key", "Operator", "Value", "Effect")}
    return {**shown, "TolerationSeconds": toleration.get("tolerationSeconds")}
