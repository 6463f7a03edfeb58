"""Strategies of admission policies and their bindings. Source: pkg/apis/admissionregistration/validation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubeloop.apiserver.builtin.kind import BuiltinStrategy
from kubeloop.apiserver.builtin.policies.parts import (
    check_mutable_operations,
    same_conditions,
    static_name_warnings,
    validate_binding_head,
    validate_policy_head,
)
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.validation.formats import each, unsupported
from kubeloop.apiserver.validation.metadata import validate_conditions
from kubeloop.merge.jsonpath_parser import JSONPathError, parse
from kubeloop.meta.field_error import Errors, FieldError, duplicate, invalid, required
from kubeloop.meta.names import qualified_name
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.apiserver.builtin.policies.expressions import ExpressionValidator

# ValidatingAdmissionPolicyBindings and MutatingAdmissionPolicyBindings. Source: pkg/apis/admissionregistration/validation.
#
# The permission to read parameters is checked in ``policies.params``.


_ACTIONS: Final = ["Audit", "Deny", "Warn"]


class _BindingStrategy(BuiltinStrategy):
    #: Upstream's validation of an update begins with that of a new object's metadata.
    metadata_checks_on_update = ("create",)

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return self.validate_create(context, obj)

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        return static_name_warnings(obj)


class ValidatingBindingStrategy(_BindingStrategy):
    """Strategy of ValidatingAdmissionPolicyBindings."""

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        spec = obj.get("spec") or {}
        return [*validate_binding_head(spec), *_actions("spec.validationActions", spec.get("validationActions") or [])]


class MutatingBindingStrategy(_BindingStrategy):
    """Strategy of MutatingAdmissionPolicyBindings."""

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        spec = obj.get("spec") or {}
        return [*validate_binding_head(spec), *check_mutable_operations("spec.matchResources", spec.get("matchResources") or {})]


def _actions(path: str, actions: list[str]) -> Errors:
    known: set[str] = set()
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            yield unsupported(f"{path}[{index}]", action, _ACTIONS)
        if action in known:
            yield duplicate(f"{path}[{index}]", action)
        known.add(action)
    if {"Deny", "Warn"} <= known:
        why = "repeating the same validation failure information in the API response and headers serves no purpose"
        yield invalid(path, actions, f"must not contain both Deny and Warn ({why})")
    if not known:
        yield required(path, "at least one validation action is required")


# MutatingAdmissionPolicies. Source: pkg/apis/admissionregistration/validation.
#
# The permission to read parameters is checked in ``policies.params``.


#: Type of a mutation -> the field that describes it.
_DESCRIPTIONS: Final = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}


class MutatingPolicyStrategy(BuiltinStrategy):
    """Strategy of MutatingAdmissionPolicies."""

    #: Upstream's validation of an update begins with that of a new object's metadata.
    metadata_checks_on_update = ("create",)

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_mutating_policy(obj, None))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_mutating_policy(obj, old))

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        return static_name_warnings(obj)


def _mutating_policy(obj: JSONObject, old: JSONObject | None) -> Errors:
    # CEL is imported with the first policy: most servers have none.
    from kubeloop.apiserver.builtin.policies.expressions import ExpressionValidator

    spec, before = obj.get("spec") or {}, None if old is None else old.get("spec") or {}
    expressions = ExpressionValidator(params=spec.get("paramKind") is not None, variables=True)
    yield from validate_policy_head(spec, expressions, mutating=True, conditions_known=same_conditions(spec, before))
    mutations, policy = spec.get("mutations") or [], spec.get("reinvocationPolicy") or ""
    if not mutations:
        yield required("spec.mutations", "mutations must contain at least one item")
    for index, one in enumerate(mutations):
        yield from _mutation(f"spec.mutations[{index}]", one, expressions)
    if not policy:
        yield required("spec.reinvocationPolicy")
    elif policy not in ("IfNeeded", "Never"):
        yield unsupported("spec.reinvocationPolicy", policy, ["IfNeeded", "Never"])


def _mutation(path: str, mutation: JSONObject, expressions: ExpressionValidator) -> Errors:
    kind = mutation.get("patchType") or ""
    if not kind:
        yield required(f"{path}.patchType")
        return
    if kind not in _DESCRIPTIONS:
        yield unsupported(f"{path}.patchType", kind, list(_DESCRIPTIONS))
        return
    own = _DESCRIPTIONS[kind]
    described = mutation.get(own)
    if described is None:
        yield required(f"{path}.{own}", f"must be specified when patchType is {kind}")
    else:
        yield from _change(f"{path}.{own}.expression", kind, (described.get("expression") or "").strip(), expressions)
    for other in _DESCRIPTIONS.values():
        if other != own and mutation.get(other) is not None:
            yield invalid(f"{path}.{other}", f"{{{other}}}", f"must not be specified when patchType is {kind}")


def _change(path: str, kind: str, expression: str, expressions: ExpressionValidator) -> Errors:
    from kubeloop.apiserver.builtin.policies.expressions import CONFIGURATION, OPERATIONS

    if not expression:
        yield required(path)
    else:
        yield from expressions.change(path, expression, OPERATIONS if kind == "JSONPatch" else CONFIGURATION)


# ValidatingAdmissionPolicies. Source: pkg/apis/admissionregistration/validation.
#
# The permission to read parameters is checked in ``policies.params``.


_REASONS: Final = ["Forbidden", "Invalid", "RequestEntityTooLarge"]
_MOST_ANNOTATIONS: Final = 20
_LONGEST_ANNOTATION: Final = 5 * 1024


class ValidatingPolicyStrategy(BuiltinStrategy):
    """Strategy of ValidatingAdmissionPolicies."""

    #: Upstream's validation of an update begins with that of a new object's metadata.
    metadata_checks_on_update = ("create",)
    metadata_checks_on_status = ()
    status_keeps_metadata = True

    def validate_create(self, context: WriteRequest, obj: JSONObject) -> list[FieldError]:
        return list(_policy(obj, None))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return list(_policy(obj, old))

    def validate_status_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        status = obj.get("status") or {}
        warnings = (status.get("typeChecking") or {}).get("expressionWarnings") or []
        errors = [
            error for index, one in enumerate(warnings) for error in _warning(f"status.typeChecking.expressionWarnings[{index}]", one)
        ]
        return [*errors, *validate_conditions("status.conditions", status.get("conditions") or [])]

    def warnings(self, context: WriteRequest, obj: JSONObject) -> list[str]:
        return static_name_warnings(obj)


def _policy(obj: JSONObject, old: JSONObject | None) -> Errors:
    # CEL is imported with the first policy: most servers have none.
    from kubeloop.apiserver.builtin.policies.expressions import ExpressionValidator

    spec, before = obj.get("spec") or {}, None if old is None else old.get("spec") or {}
    expressions = ExpressionValidator(params=spec.get("paramKind") is not None, variables=bool(spec.get("variables")))
    yield from validate_policy_head(spec, expressions, mutating=False, conditions_known=same_conditions(spec, before))
    validations, annotations = spec.get("validations") or [], spec.get("auditAnnotations") or []
    if not validations and not annotations:
        for name in ("validations", "auditAnnotations"):
            yield required(f"spec.{name}", "validations or auditAnnotations must contain at least one item")
        return
    for index, one in enumerate(validations):
        yield from _validation(f"spec.validations[{index}]", one, expressions)
    if len(annotations) > _MOST_ANNOTATIONS:
        yield invalid("spec.auditAnnotations", annotations, f"must not have more than {_MOST_ANNOTATIONS} auditAnnotations")
    keys: set[str] = set()
    for index, one in enumerate(annotations):
        path, key = f"spec.auditAnnotations[{index}]", one.get("key") or ""
        yield from _annotation(path, key, one.get("valueExpression") or "", obj["metadata"].get("name") or "", expressions)
        if key in keys:
            yield duplicate(f"{path}.key", key)
        keys.add(key)


def _validation(path: str, validation: JSONObject, expressions: ExpressionValidator) -> Errors:
    from kubeloop.apiserver.builtin.policies.expressions import CONDITION, MESSAGE

    expression, message, reason = validation.get("expression") or "", validation.get("message") or "", validation.get("reason")
    of_message = validation.get("messageExpression") or ""
    if not expression.strip():
        yield required(f"{path}.expression", "expression is not specified")
    else:
        yield from expressions.check(f"{path}.expression", expression, CONDITION)
    if of_message and not of_message.strip():
        yield invalid(f"{path}.messageExpression", of_message, "must be non-empty if specified")
    elif of_message:
        yield from expressions.check(f"{path}.messageExpression", of_message, MESSAGE, authorizer=False)
    if message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip() or "\r" in message.strip():
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    if reason is not None and reason not in _REASONS:
        yield unsupported(f"{path}.reason", reason, _REASONS)


def _annotation(path: str, key: str, expression: str, policy: str, expressions: ExpressionValidator) -> Errors:
    from kubeloop.apiserver.builtin.policies.expressions import ANNOTATION

    if policy:
        yield from each(f"{path}.key", f"{policy}/{key}", qualified_name(f"{policy}/{key}"))
    else:
        yield invalid(f"{path}.key", key, "requires metadata.name be non-empty")
    trimmed = expression.strip()
    if not trimmed:
        yield required(f"{path}.valueExpression", "valueExpression is not specified")
    elif len(trimmed.encode()) > _LONGEST_ANNOTATION:
        yield required(f"{path}.valueExpression", f"must not exceed {_LONGEST_ANNOTATION} bytes in length")
    else:
        yield from expressions.check(f"{path}.valueExpression", trimmed, ANNOTATION, shown=expression)


def _warning(path: str, warning: JSONObject) -> Errors:
    if not warning.get("warning"):
        yield required(f"{path}.warning")
    place = (warning.get("fieldRef") or "").strip()
    if not place:
        yield required(f"{path}.fieldRef")
        return
    try:
        parse(f"{{{place}}}", any_word=True)
    except JSONPathError as error:
        yield invalid(f"{path}.fieldRef", place, f"invalid JSONPath: {error}")
