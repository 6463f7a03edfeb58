"""Regular expressions of expressions: Go's, and what is wrong with one is an error of the evaluation."""

from __future__ import annotations

from kubeloop.cel.faults import EvalError
from kubeloop.schema.patterns import GoPattern, go_pattern
from kubeloop.schema.regular import PatternError


def compiled(pattern: str) -> GoPattern:
    """
    Raises:
        EvalError: not in Go's syntax, in Go's words.
    """
    try:
        return go_pattern(pattern)
    except PatternError as exc:
        raise EvalError(str(exc)) from None
