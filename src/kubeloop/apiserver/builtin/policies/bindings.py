"""ValidatingAdmissionPolicyBindings and MutatingAdmissionPolicyBindings: which policy counts where, and with which parameters.

Source: pkg/apis/admissionregistration/validation.
That whoever binds may read the parameters needs no check here: only administrators write.
"""

from __future__ import annotations

from typing import Any, Final

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.policies.parts import Errors, binding_head, mutable_operations, static_name_warnings
from kubeloop.apiserver.options import unsupported
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.meta.field_error import FieldError, duplicate, invalid, required

JSONObject = dict[str, Any]

_ACTIONS: Final = ["Audit", "Deny", "Warn"]


class _BindingStrategy(BuiltinStrategy):
    #: Upstream's validation of an update begins with that of a new object's metadata.
    metadata_checks_on_update = ("create",)

    def validate_update(self, context: RequestContext, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return self.validate_create(context, obj)

    def warnings(self, context: RequestContext, obj: JSONObject) -> list[str]:
        return static_name_warnings(obj)


class ValidatingBindingStrategy(_BindingStrategy):
    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        spec = obj.get("spec") or {}
        return [*binding_head(spec), *_actions("spec.validationActions", spec.get("validationActions") or [])]


class MutatingBindingStrategy(_BindingStrategy):
    def validate_create(self, context: RequestContext, obj: JSONObject) -> list[FieldError]:
        spec = obj.get("spec") or {}
        return [*binding_head(spec), *mutable_operations("spec.matchResources", spec.get("matchResources") or {})]


def _actions(path: str, actions: list[str]) -> Errors:
    known: set[str] = set()
    for at, action in enumerate(actions):
        if action not in _ACTIONS:
            yield unsupported(f"{path}[{at}]", action, _ACTIONS)
        if action in known:
            yield duplicate(f"{path}[{at}]", action)
        known.add(action)
    if {"Deny", "Warn"} <= known:
        why = "repeating the same validation failure information in the API response and headers serves no purpose"
        yield invalid(path, actions, f"must not contain both Deny and Warn ({why})")
    if not known:
        yield required(path, "at least one validation action is required")
