"""Evaluates the expressions of one write within a common cost budget. Variables are evaluated when they are first used.

Source: k8s.io/apiserver pkg/admission/plugin/cel (activation.go, composition.go), pkg/apis/cel (config.go).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubeloop.apiserver.expressions.compiler import CompiledExpression
from kubeloop.cel.faults import EvalError
from kubeloop.meta.errors import KubeloopError

#: Cost budget of the expressions of a policy for one binding and parameter (RuntimeCELCostBudget).
BUDGET: Final = 10_000_000
#: Cost budget of the match conditions of a policy or webhook (RuntimeCELCostBudgetMatchConditions).
CONDITIONS_BUDGET: Final = 2_500_000


class CostBudgetExceeded(KubeloopError):
    """The evaluation exceeded its cost budget."""

    def __init__(self) -> None:
        super().__init__("validation failed due to running out of cost budget, no further validation rules will be run")


@dataclass(frozen=True, slots=True)
class ExpressionResult:
    """The value of an expression, or its error."""

    value: Any = None
    error: str = ""


class _Variables(dict[str, Any]):
    """The variables of a policy: each is evaluated at most once, when it is first used, and its cost is added to ``cost``."""

    __slots__ = ("_declared", "_failed", "_values", "cost")

    def __init__(self, declared: Mapping[str, CompiledExpression], values: dict[str, Any]) -> None:
        super().__init__()
        self._declared = declared
        self._failed: dict[str, str] = {}
        self._values = values
        self.cost = 0

    def __missing__(self, name: str) -> Any:
        compiled = self._declared.get(name)
        if compiled is None:
            raise KeyError(name)
        if name not in self._failed:
            if compiled.program is None:
                self._failed[name] = f'composited variable "{name}" fails to compile: {compiled.error}'
            else:
                outcome = compiled.program.run(self._values)
                self.cost += outcome.cost
                if outcome.error is None:
                    self[name] = outcome.value
                    return outcome.value
                self._failed[name] = f'composited variable "{name}" fails to evaluate: {outcome.error}'
        raise EvalError(self._failed[name])

    def __contains__(self, name: object) -> bool:
        if name not in self._declared:
            return False
        self[str(name)]
        return True

    def take_cost(self) -> int:
        """Return the cost since the last call."""
        cost, self.cost = self.cost, 0
        return cost


def evaluate(
    expressions: Sequence[CompiledExpression | None],
    values: Mapping[str, Any],
    budget: int,
    variables: Mapping[str, CompiledExpression] | None = None,
) -> tuple[list[ExpressionResult | None], int]:
    """Evaluate expressions in order.

    Args:
        expressions: Compiled expressions; None stands for an absent one.
        values: The CEL variables.
        budget: Maximum cost of all expressions together.
        variables: Compiled variables of the policy, by name.

    Returns:
        The results in order, with None for an absent expression, and the rest of the budget.

    Raises:
        CostBudgetExceeded: The cost exceeds the budget.
    """
    if not expressions:
        return [], budget
    scope = dict(values)
    declared = scope["variables"] = _Variables(variables or {}, scope)
    try:
        return _results(expressions, scope, budget, declared)
    finally:
        del scope["variables"]  # Break the reference cycle with the scope, which would wait for the garbage collector.


def _results(
    expressions: Sequence[CompiledExpression | None], scope: dict[str, Any], budget: int, declared: _Variables
) -> tuple[list[ExpressionResult | None], int]:
    results: list[ExpressionResult | None] = []
    for one in expressions:
        if one is None:
            results.append(None)
        elif one.program is None:
            results.append(ExpressionResult(error=f"compilation error: {one.error}"))
        else:
            outcome = one.program.run(scope)
            budget -= declared.take_cost() + outcome.cost
            if budget < 0:
                raise CostBudgetExceeded
            if outcome.error is None:
                results.append(ExpressionResult(outcome.value))
            else:
                results.append(ExpressionResult(error=f"expression '{one.expression}' resulted in error: {outcome.error}"))
    return results, budget


# ``matchConditions`` of policies and webhooks, which are evaluated after rules and selectors.
#
# Source: k8s.io/apiserver pkg/admission/plugin/webhook/matchconditions/matcher.go.


class MatchConditionsError(KubeloopError):
    """A condition failed, and the failure policy is Fail."""


def conditions_hold(
    conditions: Sequence[CompiledExpression],
    values: Mapping[str, Any],
    variables: Mapping[str, CompiledExpression] | None = None,
    *,
    ignore_failure: bool,
) -> bool:
    """Return whether all conditions are true. One false condition decides, even if others fail.

    Args:
        conditions: Compiled conditions.
        values: Variables of the expressions.
        variables: Compiled variables of the policy.
        ignore_failure: The failure policy is Ignore: an error counts as false.

    Raises:
        MatchConditionsError: A condition failed and ``ignore_failure`` is False.
    """
    results: list[ExpressionResult | None]
    try:
        results, _ = evaluate(conditions, values, CONDITIONS_BUDGET, variables)
    except CostBudgetExceeded as error:
        results = [ExpressionResult(error=str(error))]
    if any(one is not None and not one.error and one.value is False for one in results):
        return False
    problems = list(dict.fromkeys(one.error for one in results if one is not None and one.error))
    if not problems:
        return True
    if ignore_failure:
        return False
    raise MatchConditionsError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
