"""CEL as Kubernetes uses it: compiles expressions for an environment and evaluates them with a cost limit.

``compile_expression(text, Environment(variables))`` returns a ``Program``; ``declared`` makes types and values from schemas.
Source: https://kubernetes.io/docs/reference/using-api/cel/, https://github.com/google/cel-spec.
"""

from kubeloop.cel.faults import CompileError, CostExceeded, EvalError, InstantiationError
from kubeloop.cel.program import PER_CALL_LIMIT, Environment, EvaluationResult, Program, compile_expression

__all__ = [
    "PER_CALL_LIMIT",
    "CompileError",
    "CostExceeded",
    "Environment",
    "EvalError",
    "EvaluationResult",
    "InstantiationError",
    "Program",
    "compile_expression",
]
