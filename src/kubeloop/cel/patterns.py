"""Regular expressions in Go's syntax; a malformed one is an evaluation error."""

from __future__ import annotations

from kubeloop.cel.faults import EvalError
from kubeloop.schema.patterns import GoPattern, go_pattern
from kubeloop.schema.regular import PatternError


def compiled(pattern: str) -> GoPattern:
    """
    Raises:
        EvalError: the pattern is not in Go's syntax; the words are Go's.
    """
    try:
        return go_pattern(pattern)
    except PatternError as exc:
        raise EvalError(str(exc)) from None
