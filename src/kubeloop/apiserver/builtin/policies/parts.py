"""Validates the fields that validating and mutating policies and their bindings share.

Source: pkg/apis/admissionregistration/validation.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kubeloop.apiserver.validation.admission_rules import check_optional_value, validate_match_conditions, validate_rule_with_operations
from kubeloop.apiserver.validation.formats import check_one_of, each, unsupported
from kubeloop.apiserver.validation.metadata import validate_label_selector
from kubeloop.meta.field_error import Errors, duplicate, forbidden, invalid, required
from kubeloop.meta.names import dns1035_label, dns1123_subdomain, path_segment
from kubeloop.types import JSONObject

if TYPE_CHECKING:
    from kubeloop.apiserver.builtin.policies.expressions import ExpressionValidator


_MUTABLE: Final = ["*", "CONNECT", "CREATE", "UPDATE"]
_STATIC: Final = ".static.k8s.io"
_RESERVED: Final = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package",
    "namespace", "return", "var", "void", "while",
})  # fmt: skip


def static_name_warnings(obj: JSONObject) -> list[str]:
    """Return a warning if the name of a policy or binding ends with ``.static.k8s.io``, the suffix of static configuration."""
    if not obj["metadata"].get("name", "").endswith(_STATIC):
        return []
    why = "are reserved for static manifest-based configurations and cannot be managed via the API"
    return [f'metadata.name: names ending with "{_STATIC}" {why}']


def validate_policy_head(spec: JSONObject, expressions: ExpressionValidator, *, mutating: bool, conditions_known: bool) -> Errors:
    """Validate the fields that validating and mutating policies share: from failurePolicy to variables.

    Args:
        spec: Spec of the policy.
        expressions: Validates the expressions; it declares the variables.
        mutating: The policy is a MutatingAdmissionPolicy.
        conditions_known: An update leaves the match conditions unchanged, so they are not validated.

    Returns:
        The errors.
    """
    yield from check_optional_value("spec.failurePolicy", spec.get("failurePolicy"), ["Fail", "Ignore"])
    if spec.get("paramKind") is not None:
        yield from _param_kind("spec.paramKind", spec["paramKind"])
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield required("spec.matchConstraints")
    else:
        yield from validate_match_resources("spec.matchConstraints", constraints)
        if not constraints.get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
        if mutating:
            yield from check_mutable_operations("spec.matchConstraints", constraints)
    if not conditions_known:
        yield from validate_match_conditions("spec.matchConditions", spec.get("matchConditions") or [], expressions.condition)
    for index, variable in enumerate(spec.get("variables") or ()):
        yield from _variable(f"spec.variables[{index}]", variable, expressions)


def same_conditions(spec: JSONObject, old: JSONObject | None) -> bool:
    """Return whether the match conditions have the same meaning as before: neither they nor the kind of parameters changed."""
    if old is None:
        return False
    same = (spec.get("matchConditions") or []) == (old.get("matchConditions") or [])
    return same and spec.get("paramKind") == old.get("paramKind")


def validate_binding_head(spec: JSONObject) -> Errors:
    """Validate the fields that bindings share."""
    name = spec.get("policyName") or ""
    if not name:
        yield required("spec.policyName")
    else:
        yield from each("spec.policyName", name, dns1123_subdomain(name))
    if spec.get("paramRef") is not None:
        yield from _param_ref("spec.paramRef", spec["paramRef"])
    if spec.get("matchResources") is not None:
        yield from validate_match_resources("spec.matchResources", spec["matchResources"])


def validate_match_resources(path: str, value: JSONObject) -> Errors:
    """Validate ``matchConstraints`` or ``matchResources``."""
    yield from check_optional_value(f"{path}.matchPolicy", value.get("matchPolicy"), ["Equivalent", "Exact"])
    for name in ("namespaceSelector", "objectSelector"):
        yield from validate_label_selector(f"{path}.{name}", value.get(name))
    for name in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(value.get(name) or ()):
            yield from _named_rule(f"{path}.{name}[{index}]", rule)


def check_mutable_operations(path: str, value: JSONObject) -> Errors:
    """Check that no rule of a mutating policy names DELETE."""
    for rule in value.get("resourceRules") or ():
        for operation in rule.get("operations") or ():
            yield from check_one_of(f"{path}.resourceRules.operations", operation, _MUTABLE)


def _named_rule(path: str, rule: JSONObject) -> Errors:
    known: set[str] = set()
    for index, name in enumerate(rule.get("resourceNames") or ()):
        yield from each(f"{path}.resourceNames[{index}]", name, path_segment(name))
        if name in known:
            yield duplicate(f"{path}.resourceNames[{index}]", name)
        known.add(name)
    yield from validate_rule_with_operations(path, rule)


def _param_kind(path: str, kind: JSONObject) -> Errors:
    version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    if not version:
        yield required(f"{path}.apiVersion")
    elif version.count("/") > 1:
        yield invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    else:
        yield from _group_version(f"{path}.apiVersion", version)
    if not name:
        yield required(f"{path}.kind")
    elif errors := dns1035_label(name.lower()):
        yield invalid(f"{path}.kind", name, f"may have mixed case, but should otherwise match: {','.join(errors)}")


def _group_version(path: str, text: str) -> Errors:
    group, _, version = text.rpartition("/")
    if group and (errors := dns1123_subdomain(group)):
        yield invalid(path, group, ",".join(errors))
    if not version:
        yield invalid(path, text, "version must be specified")
    elif errors := dns1035_label(version):
        yield invalid(path, version, ",".join(errors))


def _variable(path: str, variable: JSONObject, expressions: ExpressionValidator) -> Errors:
    name, expression = variable.get("name") or "", variable.get("expression") or ""
    if not name.strip():
        yield required(f"{path}.name", "name is not specified")
    elif not re.fullmatch("[_a-zA-Z][_a-zA-Z0-9]*", name) or name in _RESERVED:
        yield invalid(f"{path}.name", name, "must be a valid CEL identifier")
    if not expression.strip():
        yield required(f"{path}.expression", "expression is not specified")
    else:
        yield from expressions.variable(f"{path}.expression", name, expression)


def _param_ref(path: str, value: JSONObject) -> Errors:
    name, selector, action = value.get("name") or "", value.get("selector"), value.get("parameterNotFoundAction") or ""
    if name:
        yield from each(f"{path}.name", name, path_segment(name))
        if selector is not None:
            yield forbidden(f"{path}.name", "name and selector are mutually exclusive")
    if selector is not None:
        yield from validate_label_selector(f"{path}.selector", selector)
        if name:
            yield forbidden(f"{path}.selector", "name and selector are mutually exclusive")
    if not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    if not action:
        yield required(f"{path}.parameterNotFoundAction")
    elif action not in ("Deny", "Allow"):
        yield unsupported(f"{path}.parameterNotFoundAction", action, ["Deny", "Allow"])
