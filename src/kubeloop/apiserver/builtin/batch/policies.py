"""When a job counts as failed or done before its time: podFailurePolicy and successPolicy. Source: pkg/apis/batch/validation."""

from __future__ import annotations

from kubeloop.apiserver.builtin.batch.job_status import BadIndexes, check_indexes
from kubeloop.apiserver.validation.formats import each, not_negative, one_of
from kubeloop.meta.field_error import OMITTED, Errors, FieldError, FieldErrorType, duplicate, invalid, required, too_long
from kubeloop.meta.names import qualified_name
from kubeloop.types import JSONObject

_LONGEST_INDEXES = 64 * 1024
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")


def _too_many(path: str, count: int, limit: int) -> Errors:
    if count > limit:
        yield FieldError(FieldErrorType.TOO_MANY, path, count, f"must have at most {limit} items")


def failure_policy(path: str, spec: JSONObject) -> Errors:
    rules = spec["podFailurePolicy"].get("rules") or []
    yield from _too_many(f"{path}.rules", len(rules), 20)
    pod = (spec.get("template") or {}).get("spec") or {}
    names = {one.get("name", "") for kind in ("containers", "initContainers") for one in pod.get(kind) or ()}
    for at, rule in enumerate(rules):
        yield from _failure_rule(f"{path}.rules[{at}]", rule, spec, names)


def _failure_rule(path: str, rule: JSONObject, spec: JSONObject, names: set[str]) -> Errors:
    action, codes, conditions = rule.get("action", ""), rule.get("onExitCodes"), rule.get("onPodConditions") or []
    if not action:
        yield required(f"{path}.action", 'valid values: ["Count" "FailIndex" "FailJob" "Ignore"]')
    elif action == "FailIndex":
        if spec.get("backoffLimitPerIndex") is None:
            yield invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set")
    else:
        yield from one_of(f"{path}.action", action, _ACTIONS)
    if codes is not None:
        yield from _exit_codes(f"{path}.onExitCodes", codes, names)
    yield from _too_many(f"{path}.onPodConditions", len(conditions), 20)
    for at, pattern in enumerate(conditions):
        here = f"{path}.onPodConditions[{at}]"
        yield from each(f"{here}.type", pattern.get("type", ""), qualified_name(pattern.get("type", "")))
        yield from one_of(f"{here}.status", pattern.get("status", ""), ("False", "True", "Unknown"))
    if codes is not None and conditions:
        yield _without_value(path, "specifying both OnExitCodes and OnPodConditions is not supported")
    if codes is None and not conditions:
        yield _without_value(path, "specifying one of OnExitCodes and OnPodConditions is required")


def _without_value(path: str, detail: str) -> FieldError:
    """An invalid value too large to show."""
    return FieldError(FieldErrorType.INVALID, path, OMITTED, detail)


def _exit_codes(path: str, codes: JSONObject, names: set[str]) -> Errors:
    operator, values, container = codes.get("operator", ""), codes.get("values") or [], codes.get("containerName")
    if not operator:
        yield required(f"{path}.operator", 'valid values: ["In" "NotIn"]')
    else:
        yield from one_of(f"{path}.operator", operator, ("In", "NotIn"))
    if container is not None and container not in names:
        detail = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{path}.containerName", container, detail)
    if not values:
        yield invalid(f"{path}.values", codes.get("values"), "at least one value is required")
    yield from _too_many(f"{path}.values", len(values), 255)
    for at, value in enumerate(values):
        if operator == "In" and value == 0:
            yield invalid(f"{path}.values[{at}]", 0, "must not be 0 for the In operator")
        if value in values[:at]:
            yield duplicate(f"{path}.values[{at}]", value)
    if sorted(values) != values:
        yield invalid(f"{path}.values", values, "must be ordered")


def success_policy(path: str, spec: JSONObject) -> Errors:
    if spec.get("completionMode") != "Indexed":
        yield invalid(path, spec["successPolicy"], "requires indexed completion mode")
        return
    rules, completions = spec["successPolicy"].get("rules") or [], spec.get("completions") or 0
    if not rules:
        yield required(f"{path}.rules", "at least one rules must be specified when the successPolicy is specified")
    yield from _too_many(f"{path}.rules", len(rules), 20)
    for at, rule in enumerate(rules):
        here, count, indexes = f"{path}.rules[{at}]", rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            yield required(here, "at least one of succeededCount or succeededIndexes must be specified")
        if indexes is not None:
            yield from _indexes(f"{here}.succeededIndexes", indexes, completions)
        if count is not None:
            yield from _count(f"{here}.succeededCount", count, indexes, completions)


def _indexes(path: str, indexes: str, completions: int) -> Errors:
    if len(indexes.encode()) > _LONGEST_INDEXES:
        yield too_long(path, _LONGEST_INDEXES)
    try:
        check_indexes(indexes, completions)
    except BadIndexes as fault:
        yield invalid(path, indexes, f"error parsing succeededIndexes: {fault}")


def _count(path: str, count: int, indexes: str | None, completions: int) -> Errors:
    yield from not_negative(path, count)
    if count > completions:
        yield invalid(path, count, f"must be less than or equal to {completions} (the number of specified completions)")
    if indexes is None:
        return
    try:
        total = check_indexes(indexes, completions)
    except BadIndexes:
        total = 0
    if count > total:
        yield invalid(path, count, f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)")
