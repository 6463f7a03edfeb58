"""What ``matchConditions`` of webhooks may say. Source: k8s.io/apiserver pkg/admission/plugin/webhook/matchconditions."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kubeloop.apiserver.policies.compiling import CONDITION, Compiled, Compiler

#: Characters of a condition that is kept when it has been compiled; a program takes some hundred times as many bytes.
_LONGEST: Final = 1024


def compiled(expression: str) -> Compiled:
    """A condition ready to be evaluated, or what is wrong with it, as Kubernetes says it."""
    return _kept(expression) if len(expression) <= _LONGEST else _made(expression)


@lru_cache(maxsize=256)
def _kept(expression: str) -> Compiled:
    return _made(expression)


def _made(expression: str) -> Compiled:
    return Compiler(params=False, variables=False).expression(expression, CONDITION)
