"""CEL as Kubernetes speaks it: expressions compiled for an environment, evaluated with a bound on what they cost.

``compile_expression(text, Environment(variables))`` gives a ``Program``; ``declared`` makes types and values out of schemas.
Source: https://kubernetes.io/docs/reference/using-api/cel/, https://github.com/google/cel-spec.
"""

from kubeloop.cel.faults import CompileError, CostExceeded, EvalError, InstantiationError
from kubeloop.cel.program import PER_CALL_LIMIT, Environment, Outcome, Program, compile_expression

__all__ = [
    "PER_CALL_LIMIT",
    "CompileError",
    "CostExceeded",
    "Environment",
    "EvalError",
    "InstantiationError",
    "Outcome",
    "Program",
    "compile_expression",
]
