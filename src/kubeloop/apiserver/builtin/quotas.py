"""Resource quotas. Source: ValidateResourceQuota and kin, pkg/apis/core/helper (which scopes count which resources)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.pods.resources import COUNTED, resource_name, resource_value
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.validation.formats import IMMUTABLE
from kubeloop.meta.field_error import FieldError, invalid, required
from kubeloop.schema.internal_values import internal_value

JSONObject = dict[str, Any]
Errors = Iterator[FieldError]

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
    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        return list(_spec(obj["spec"]))

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        found, scopes = list(_spec(obj["spec"])), obj["spec"].get("scopes")
        if set(scopes or ()) != set(old["spec"].get("scopes") or ()):
            found.append(invalid("spec.scopes", scopes, IMMUTABLE))
        return found

    def validate_status_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        status = obj.get("status") or {}
        return [error for name in ("hard", "used") for error in _amounts(f"status.{name}", status.get(name) or {})]


def _amounts(path: str, amounts: dict[str, str]) -> Errors:
    for name, value in amounts.items():
        here = f"{path}[{name}]"
        yield from resource_name(here, name)
        if "/" not in name and not _is_standard(name):
            yield invalid(here, name, "must be a standard resource for quota")
        yield from resource_value(here, name, value)


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


def _contradictions(path: str, met: set[str], shown: Any) -> Errors:
    for pair in _CONTRADICTIONS:
        if pair <= met:
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
