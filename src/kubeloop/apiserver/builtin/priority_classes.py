"""Priority classes. Source: ValidatePriorityClass, pkg/apis/scheduling/v1/helpers.go."""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.validation.formats import immutable, one_of
from kubeloop.meta.field_error import FieldError, forbidden, required

JSONObject = dict[str, Any]

_HIGHEST = 1_000_000_000
_SYSTEM = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


class PriorityClassStrategy(BuiltinStrategy):
    def counts_for_generation(self, obj: JSONObject) -> object:
        return None  # it is 1 and stays so

    def deletion_fault(self, name: str) -> str:
        return "this is a system priority class and cannot be deleted" if name in _SYSTEM else ""

    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        name, value, found = obj["metadata"].get("name", ""), obj.get("value", 0), []
        if name.startswith("system-"):
            if fault := _not_of_the_system(name, value, bool(obj.get("globalDefault"))):
                text = f"priority class names with 'system-' prefix are reserved for system use only. error: {fault}"
                found.append(forbidden("metadata.name", text))
        elif value > _HIGHEST:
            found.append(forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST}"))
        if obj.get("preemptionPolicy") == "":
            found.append(required("preemptionPolicy"))
        elif obj.get("preemptionPolicy") is not None:
            found += one_of("preemptionPolicy", obj["preemptionPolicy"], ("PreemptLowerPriority", "Never"))
        return found

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        found = []
        if obj.get("value", 0) != old.get("value", 0):
            found.append(forbidden("value", "may not be changed in an update."))
        return found + list(immutable("preemptionPolicy", obj.get("preemptionPolicy"), old.get("preemptionPolicy")))


def _not_of_the_system(name: str, value: int, default: bool) -> str:
    if name not in _SYSTEM:
        return f"{name} is not a known system priority class"
    if value != _SYSTEM[name]:
        return f"value of {name} PriorityClass must be {_SYSTEM[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if default else ""
