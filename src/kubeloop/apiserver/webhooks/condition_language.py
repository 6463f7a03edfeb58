"""What ``matchConditions`` of webhooks may say. Source: k8s.io/apiserver pkg/admission/plugin/webhook/matchconditions."""

from __future__ import annotations

from functools import cache
from typing import Final

from kubeloop.apiserver.webhooks.admission_variables import ADMISSION_FIELDS, admission_variables
from kubeloop.cel import CompileError, Environment, Program, compile_expression, types

_ENVIRONMENT: Final = Environment(admission_variables(), ADMISSION_FIELDS)
#: What all conditions of a webhook may cost together (k8s.io/apiserver pkg/apis/cel RuntimeCELCostBudgetMatchConditions).
COST_LIMIT: Final = 2_500_000


class ConditionFault(ValueError):
    """An expression that is no condition; the text says why, as Kubernetes does."""


@cache
def compiled(expression: str) -> Program:
    """A condition ready to be evaluated.

    Raises:
        ConditionFault: it cannot be compiled, or gives no bool.
    """
    try:
        program = compile_expression(expression, _ENVIRONMENT)
    except CompileError as fault:
        raise ConditionFault(f"compilation failed: {fault}") from None
    if program.result != types.BOOL:
        raise ConditionFault(f"must evaluate to bool but got {program.result}")
    return program
