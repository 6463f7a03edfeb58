"""Validates the parts that webhooks and admission policies share: rules with operations, and match conditions.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation (validateRuleWithOperations, validateMatchConditions).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubeloop.apiserver.validation.formats import unsupported
from kubeloop.meta.field_error import Errors, FieldError, FieldErrorType, duplicate, invalid, required
from kubeloop.meta.names import qualified_name
from kubeloop.types import JSONObject

#: Validates an expression at a path and yields at most one error.
Check = Callable[[str, str], Errors]

_OPERATIONS: Final = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]
_SCOPES: Final = ["*", "Cluster", "Namespaced"]
_MOST_CONDITIONS: Final = 64


def check_optional_value(path: str, value: str | None, allowed: list[str]) -> Errors:
    """Check that an optional value is None or one of the allowed values."""
    if value is not None and value not in allowed:
        yield unsupported(path, value, allowed)


def validate_rule_with_operations(path: str, rule: JSONObject) -> Errors:
    """Validate a rule with operations."""
    operations = rule.get("operations") or []
    yield from _all_or_some(f"{path}.operations", operations, "operations")
    for index, one in enumerate(operations):
        yield from check_optional_value(f"{path}.operations[{index}]", one, _OPERATIONS)
    yield from _all_or_some(f"{path}.apiGroups", rule.get("apiGroups") or [], "API groups")
    versions = rule.get("apiVersions") or []
    yield from _all_or_some(f"{path}.apiVersions", versions, "API versions")
    for index, one in enumerate(versions):
        if not one:
            yield required(f"{path}.apiVersions[{index}]")
    yield from _resources(f"{path}.resources", rule.get("resources") or [])
    yield from check_optional_value(f"{path}.scope", rule.get("scope"), _SCOPES)


def _all_or_some(path: str, values: list[str], plural_name: str) -> Errors:
    if not values:
        yield required(path)
    if len(values) > 1 and "*" in values:
        yield invalid(path, values, f"if '*' is present, must not specify other {plural_name}")


def _resources(path: str, resources: list[str]) -> Errors:
    if not resources:
        yield required(path)
    all_of: set[str] = set()
    of_all: set[str] = set()
    plain = False
    for index, text in enumerate(resources):
        if not text:
            yield required(f"{path}[{index}]")
            continue
        name, slash, sub = text.partition("/")
        if not slash:
            plain = text != "*"  # As upstream, the last one decides.
            continue
        if name in all_of:
            yield invalid(f"{path}[{index}]", text, f"if '{name}/*' is present, must not specify {text}")
        if sub in of_all:
            yield invalid(f"{path}[{index}]", text, f"if '*/{sub}' is present, must not specify {text}")
        if sub == "*":
            all_of.add(name)
        if name == "*":
            of_all.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(path, resources, "if '*/*' is present, must not specify other resources")
    if "*" in resources and plain:
        yield invalid(path, resources, "if '*' is present, must not specify other resources without subresources")


def validate_match_conditions(path: str, conditions: list[JSONObject], check: Check) -> Errors:
    """Validate match conditions. ``check`` validates each expression, without surrounding white space."""
    if len(conditions) > _MOST_CONDITIONS:
        yield FieldError(FieldErrorType.TOO_MANY, path, len(conditions), f"must have at most {_MOST_CONDITIONS} items")
    names: set[str] = set()
    for index, condition in enumerate(conditions):
        yield from _condition(f"{path}[{index}]", condition, check)
        name = condition.get("name") or ""
        if name in names:
            yield duplicate(f"{path}[{index}].name", name)
        if name:
            names.add(name)


def _condition(path: str, condition: JSONObject, check: Check) -> Errors:
    expression, name = (condition.get("expression") or "").strip(), condition.get("name") or ""
    if not expression:
        yield required(f"{path}.expression")
    else:
        yield from check(f"{path}.expression", expression)
    if not name:
        yield required(f"{path}.name")
    else:
        for message in qualified_name(name):
            yield invalid(f"{path}.name", name, message)
