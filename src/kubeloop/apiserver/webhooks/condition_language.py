"""What ``matchConditions`` of webhooks may say. Source: k8s.io/apiserver pkg/admission/plugin/webhook/matchconditions."""

from __future__ import annotations

from functools import lru_cache

from kubeloop.apiserver.policies.compiling import CONDITION, Compiled, Compiler


@lru_cache(maxsize=1024)
def compiled(expression: str) -> Compiled:
    """A condition ready to be evaluated, or what is wrong with it, as Kubernetes says it."""
    return Compiler(params=False, variables=False).expression(expression, CONDITION)
