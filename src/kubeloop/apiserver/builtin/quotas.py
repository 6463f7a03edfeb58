"""Strategies of ResourceQuotas and LimitRanges. Source: pkg/apis/core/validation, pkg/apis/core/helper (resources of each scope)."""

from __future__ import annotations

import uuid
from typing import Any

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.resources import (
    COUNTED,
    check_resource_value,
    validate_container_resource_name,
    validate_resource_name,
)
from kubeloop.apiserver.builtin.quantities import may_overcommit, quantity
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import IMMUTABLE, each
from kubeloop.meta.field_error import Errors, FieldError, duplicate, forbidden, invalid, required
from kubeloop.meta.names import qualified_name
from kubeloop.schema.internal_values import internal_value
from kubeloop.types import JSONObject

_TYPES = ("Container", "PersistentVolumeClaim", "Pod")
#: Above this value ratios are computed in whole units, because thousandths would overflow.
_MOST_MILLI = (2**63 - 1) // 1000


class LimitRangeStrategy(BuiltinStrategy):
    """Strategy of LimitRanges."""

    metadata_checks_on_update = ("create",)

    def prepare_create(self, context: WriteRequest, obj: JSONObject) -> None:
        super().prepare_create(context, obj)
        if not obj["metadata"].get("name"):
            obj["metadata"]["name"] = str(uuid.uuid4())

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_limits(obj["spec"].get("limits") or []))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return self.validate_create(context, obj)


def _limits(limits: list[JSONObject]) -> Errors:
    types: set[str] = set()
    for index, limit in enumerate(limits):
        here, kind = f"spec.limits[{index}]", limit.get("type", "")
        errors = qualified_name(kind)
        yield from each(f"{here}.type", kind, errors)
        if not errors and "/" not in kind and kind not in _TYPES:
            yield invalid(f"{here}.type", kind, "must be a standard limit type or fully qualified")
        if kind in types:
            yield duplicate(f"{here}.type", kind)
        types.add(kind)
        yield from _limit(here, limit)


def _limit(path: str, limit: JSONObject) -> Errors:
    kind = limit.get("type", "")
    parts = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
    if kind == "Pod":
        for name in ("default", "defaultRequest"):
            parts.remove(name)
            if limit.get(name):
                yield forbidden(f"{path}.{name}", "may not be specified when `type` is 'Pod'")
    check = validate_container_resource_name if kind in ("Pod", "Container") else validate_resource_name
    names: dict[str, None] = {}
    for part in parts:
        for name in limit.get(part) or ():
            yield from check(f"{path}.{part}[{name}]", name)
            names[name] = None
    if kind == "PersistentVolumeClaim" and "storage" not in {**(limit.get("min") or {}), **(limit.get("max") or {})}:
        yield required(f"{path}.limits", "either minimum or maximum storage value is required, but neither was provided")
    for name in names:
        yield from _resource(path, name, {part: (limit.get(part) or {}).get(name) for part in parts})


def _resource(path: str, name: str, texts: dict[str, str | None]) -> Errors:
    minimum, maximum, default, request = (texts.get(part) for part in ("min", "max", "default", "defaultRequest"))
    #: Smaller value, larger value, field of the error, value in the error, names of both.
    for low, high, part, shown, words in (
        (minimum, maximum, "min", minimum, ("min", "max")),
        (minimum, request, "defaultRequest", request, ("min", "default request")),
        (request, maximum, "defaultRequest", request, ("default request", "max")),
        (request, default, "defaultRequest", request, ("default request", "default limit")),
        (minimum, default, "default", minimum, ("min", "default")),
        (default, maximum, "default", maximum, ("default", "max")),
    ):
        if low is not None and high is not None and quantity(low) > quantity(high):
            yield invalid(f"{path}.{part}[{name}]", shown, f"{words[0]} value {low} is greater than {words[1]} value {high}")
    yield from _ratio(f"{path}.maxLimitRequestRatio[{name}]", texts.get("maxLimitRequestRatio"), minimum, maximum)
    if default is not None and request is not None and not may_overcommit(name) and quantity(default) != quantity(request):
        text = f"default value {default} must equal to defaultRequest value {request} in {name}"
        yield invalid(f"{path}.defaultRequest[{name}]", request, text)


def _ratio(path: str, text: str | None, minimum: str | None, maximum: str | None) -> Errors:
    if text is None:
        return
    if quantity(text) < 1:
        yield invalid(path, text, f"ratio {text} is less than 1")
    if minimum is None or maximum is None:
        return
    three = [quantity(one) for one in (text, maximum, minimum)]
    milli = all(one.value() < _MOST_MILLI for one in three)
    ratio, high, low = (one.milli_value() if milli else one.value() for one in three)
    if low and (ratio / 1000 if milli else ratio) > high / low:
        yield invalid(path, text, f"ratio {text} is greater than max/min = {high / low:f}")


_POD_RESOURCES = frozenset({"pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"})
_STANDARD = COUNTED | _POD_RESOURCES | {"ephemeral-storage", "requests.ephemeral-storage", "limits.ephemeral-storage", "requests.storage"}
_COVERS = {
    "Terminating": _POD_RESOURCES,
    "NotTerminating": _POD_RESOURCES,
    "NotBestEffort": _POD_RESOURCES,
    "PriorityClass": _POD_RESOURCES,
    "CrossNamespacePodAffinity": _POD_RESOURCES,
    "BestEffort": frozenset({"pods"}),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
_ONLY_EXISTS = frozenset({"BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"})
_CONTRADICTIONS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})


class QuotaStrategy(BuiltinStrategy):
    """Strategy of ResourceQuotas."""

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"]))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        result, scopes = list(_spec(obj["spec"])), obj["spec"].get("scopes")
        if set(scopes or ()) != set(old["spec"].get("scopes") or ()):
            result.append(invalid("spec.scopes", scopes, IMMUTABLE))
        return result

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        status = obj.get("status") or {}
        return [error for name in ("hard", "used") for error in _amounts(f"status.{name}", status.get(name) or {})]


def _amounts(path: str, amounts: dict[str, str]) -> Errors:
    for name, value in amounts.items():
        here = f"{path}[{name}]"
        yield from validate_resource_name(here, name)
        if "/" not in name and not _is_standard(name):
            yield invalid(here, name, "must be a standard resource for quota")
        yield from check_resource_value(here, name, value)


def _is_standard(name: str) -> bool:
    return name in _STANDARD or name.startswith(("hugepages-", "requests.hugepages-"))


def _spec(spec: JSONObject) -> Errors:
    hard, scopes = spec.get("hard") or {}, spec.get("scopes") or []
    yield from _amounts("spec.hard", hard)
    for scope in scopes:
        if scope not in _COVERS:
            yield invalid("spec.scopes", scopes, "unsupported scope")
        yield from _uncovered("spec.scopes", scope, hard, scopes)
    yield from _contradictions("spec.scopes", set(scopes), scopes)
    if spec.get("scopeSelector") is not None:
        yield from _selector("spec.scopeSelector.matchExpressions", spec)


def _uncovered(path: str, scope: str, hard: dict[str, str], shown: Any) -> Errors:
    for name in sorted(hard):
        if _is_standard(name) and name not in _COVERS.get(scope, hard):
            yield invalid(path, shown, "unsupported scope applied to resource")


def _contradictions(path: str, scopes: set[str], shown: Any) -> Errors:
    for pair in _CONTRADICTIONS:
        if pair <= scopes:
            yield invalid(path, shown, "conflicting scopes")


def _selector(path: str, spec: JSONObject) -> Errors:
    expressions = spec["scopeSelector"].get("matchExpressions") or []
    shown = internal_value("core.ScopeSelector", spec["scopeSelector"])
    for one in expressions:
        scope, operator, values = one.get("scopeName", ""), one.get("operator", ""), one.get("values") or []
        if scope not in _COVERS:
            yield invalid(f"{path}.scopeName", scope, "unsupported scope")
        yield from _uncovered(path, scope, spec.get("hard") or {}, shown)
        if scope in _ONLY_EXISTS and operator != "Exists":
            names = "ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
            names += "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
            yield invalid(f"{path}.operator", operator, f"must be 'Exists' when scope is any of {names}")
        if operator in ("In", "NotIn"):
            if not values:
                yield required(f"{path}.values", "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                yield invalid(f"{path}.values", values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector")
        else:
            yield invalid(f"{path}.operator", operator, "not a valid selector operator")
    yield from _contradictions(path, {one.get("scopeName", "") for one in expressions}, spec.get("scopes"))
