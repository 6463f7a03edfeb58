"""Checks the CEL rules of a new or changed definition: each must compile, and its estimated cost must stay below Kubernetes' limit.

Source: apiextensions-apiserver validation (ValidateCustomResourceDefinitionOpenAPISchema, cel_validation.go).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kubeloop.apiserver.crd.compiled_rules import CompiledRule, RuleCompiler
from kubeloop.apiserver.crd.rules import SchemaRules
from kubeloop.cel.declared import DeclaredType, declare
from kubeloop.cel.estimate import UNBOUNDED
from kubeloop.meta.field_error import FieldError, FieldErrorType, forbidden, invalid
from kubeloop.schema.internal_form import rule_form
from kubeloop.schema.structural import has_rules, parse
from kubeloop.types import JSONObject

_RULE_LIMIT: Final = 10_000_000
_TOTAL_LIMIT: Final = 100_000_000
_MOST_NAMED: Final = 4
_ADVICE: Final = "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared"


def check_rules(schema: JSONObject, path: str, errors: list[FieldError]) -> list[FieldError]:
    """Return the errors of the rules in a schema. Parts of the schema that already have errors (``errors``) are skipped."""
    if any(_forbids_types(error, path) for error in errors):
        return []
    wrong = list(_defaults(schema, path, is_root=True))
    if wrong:
        return wrong
    total = _Total()
    all_errors = list(_Checks(errors, total).node(schema, path, _Place()))
    if total.cost > _TOTAL_LIMIT:
        why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        all_errors.extend(forbidden(index, why) for _, index in total.dearest)
        description = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        all_errors.append(forbidden(path, _too_dear(description, total.cost, _TOTAL_LIMIT)))
    return all_errors


def _forbids_types(fault: FieldError, path: str) -> bool:
    """Return whether an error prevents deriving CEL types: an invalid default, or a schema that is not structural at its root."""
    below = fault.field.removeprefix(path)
    return below == ".type" or ".default" in below


def _defaults(schema: Any, path: str, *, is_root: bool = False, in_metadata: bool = False) -> Iterator[FieldError]:
    """Yield errors of defaults that violate the rules of the schema around them."""
    if not isinstance(schema, dict):
        return
    embedded = is_root or bool(schema.get("x-kubernetes-embedded-resource"))
    in_metadata = in_metadata and not embedded
    default = schema.get("default")
    if default is not None and not in_metadata and has_rules(node := parse(schema)):
        yield from SchemaRules(node, is_root=embedded).check_default(default, f"{path}.default")
    yield from _defaults(schema.get("items"), f"{path}.items", in_metadata=in_metadata)
    for name, below in sorted((schema.get("properties") or {}).items()):
        meta = in_metadata or (embedded and name in ("metadata", "kind", "apiVersion"))
        yield from _defaults(below, f"{path}.properties[{name}]", in_metadata=meta)


@dataclass(slots=True)
class _Total:
    cost: int = 0
    dearest: list[tuple[int, str]] = field(default_factory=list)

    def add(self, cost: int, path: str) -> None:
        """Add the cost of the rule at a path."""
        self.cost = min(self.cost + cost, UNBOUNDED)
        if cost >= _TOTAL_LIMIT // 100:
            self.dearest.append((cost, path))
            self.dearest.sort(key=lambda rule_cost: -rule_cost[0])
            del self.dearest[_MOST_NAMED:]


@dataclass(frozen=True, slots=True)
class _Place:
    """Position of a schema node. ``cardinality`` is the maximum number of its values in one object; None if there is no limit."""

    is_root: bool = True
    cardinality: int | None = 1
    #: The surrounding list whose old and new items cannot be matched.
    uncorrelatable: str = ""

    def below(self, schema: JSONObject) -> _Place:
        """Return the position of the nodes below this node, whose schema is ``schema``."""
        maximum = _most_elements(schema)
        known = self.cardinality is not None and maximum is not None
        return replace(self, is_root=False, cardinality=min((self.cardinality or 0) * (maximum or 0), UNBOUNDED) if known else None)


def _most_elements(schema: JSONObject) -> int | None:
    match schema.get("type"):
        case "object" if schema.get("additionalProperties") is not None:
            bound = schema.get("maxProperties")
        case "array":
            bound = schema.get("maxItems")
        case _:
            return 1
    return None if bound is None else max(bound, 0)


class _Checks:
    def __init__(self, errors: list[FieldError], total: _Total) -> None:
        self._faults = errors
        self._total = total

    def node(self, schema: Any, path: str, place: _Place) -> Iterator[FieldError]:
        """Yield the errors of one schema node and those below it."""
        if not isinstance(schema, dict):
            return
        below = place.below(schema)
        yield from self.node(schema.get("additionalProperties"), f"{path}.additionalProperties", below)
        for name, child in sorted((schema.get("properties") or {}).items()):
            yield from self.node(child, f"{path}.properties[{name}]", below)
        items = below
        if schema.get("x-kubernetes-list-type") != "map" and not below.uncorrelatable:
            items = replace(below, uncorrelatable=path)
        yield from self.node(schema.get("items"), f"{path}.items", items)
        rules = schema.get("x-kubernetes-validations")
        if rules and not any(error.field.startswith(path) for error in self._faults):
            yield from self._rules(schema, rules, path, place)

    def _rules(self, schema: JSONObject, rules: list[JSONObject], path: str, place: _Place) -> Iterator[FieldError]:
        node = parse(schema)
        declared = declare(node, is_root=place.is_root or node.embedded_resource)
        position = f"{path}.x-kubernetes-validations"
        if declared is None:
            why = "failed to construct type information for x-kubernetes-validations rules"
            detail = f"internal error: {why}: unable to convert structural schema to CEL declarations"
            yield FieldError(FieldErrorType.INTERNAL, position, None, detail)
            return
        compiler = RuleCompiler(node, declared)
        for index, rule in enumerate(rules):
            yield from self._rule(compiler.compile(rule), declared, f"{position}[{index}]", place)

    def _rule(self, value: CompiledRule, declared: DeclaredType, at: str, place: _Place) -> Iterator[FieldError]:
        cost = min(value.most_cost * (declared.cardinality if place.cardinality is None else place.cardinality), UNBOUNDED)
        if cost > _RULE_LIMIT:
            yield forbidden(f"{at}.rule", _too_dear("estimated rule cost", cost, _RULE_LIMIT))
        self._total.add(cost, f"{at}.rule")
        if value.error:
            yield invalid(f"{at}.rule", rule_form(value.rule), value.error)
        if value.message_error:
            yield invalid(f"{at}.messageExpression", rule_form(value.rule), value.message_error)
        elif value.message is not None:
            if value.message_cost > _RULE_LIMIT:
                detail = _too_dear("estimated messageExpression cost", value.message_cost, _RULE_LIMIT)
                yield forbidden(f"{at}.messageExpression", detail)
            self._total.add(value.message_cost, f"{at}.messageExpression")
        if value.uses_old:
            if place.uncorrelatable:
                detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.uncorrelatable}"
                yield invalid(f"{at}.rule", value.rule.get("rule"), detail)
        elif value.rule.get("optionalOldSelf") is not None:
            detail = "may not be set if oldSelf is not used in rule"
            yield invalid(f"{at}.optionalOldSelf", value.rule["optionalOldSelf"], detail)


def _too_dear(description: str, cost: int, limit: int) -> str:
    factor = cost / limit
    shown = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{description} exceeds budget by factor of {shown} ({_ADVICE})"
