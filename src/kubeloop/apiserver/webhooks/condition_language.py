"""What ``matchConditions`` may say: CEL with the object, the old object, the request and an authorizer as variables.

Source: k8s.io/apiserver pkg/admission/plugin/cel/compile.go (variables, BuildRequestType).
"""

from __future__ import annotations

from functools import cache
from typing import Final

from kubeloop.cel import CompileError, Environment, ParserMissing, Program, compile_expression, types

_KIND: Final = types.struct("kubernetes.GroupVersionKind")
_RESOURCE: Final = types.struct("kubernetes.GroupVersionResource")
_USER: Final = types.struct("kubernetes.UserInfo")
_REQUEST: Final = types.struct("kubernetes.AdmissionRequest")
_TEXTS: Final = types.list_of(types.STRING)

_FIELDS: Final = {
    _KIND.name: {"group": types.STRING, "version": types.STRING, "kind": types.STRING},
    _RESOURCE.name: {"group": types.STRING, "version": types.STRING, "resource": types.STRING},
    _USER.name: {"username": types.STRING, "uid": types.STRING, "groups": _TEXTS, "extra": types.map_of(types.STRING, _TEXTS)},
    _REQUEST.name: {
        "kind": _KIND,
        "resource": _RESOURCE,
        "subResource": types.STRING,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "requestSubResource": types.STRING,
        "name": types.STRING,
        "namespace": types.STRING,
        "operation": types.STRING,
        "userInfo": _USER,
        "dryRun": types.BOOL,
        "options": types.DYN,
    },
}
_ENVIRONMENT: Final = Environment(
    {
        "object": types.DYN,
        "oldObject": types.DYN,
        "namespaceObject": types.DYN,
        "request": _REQUEST,
        "authorizer": types.AUTHORIZER,
        "authorizer.requestResource": types.RESOURCE_CHECK,
    },
    _FIELDS,
)
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
    except ParserMissing as fault:
        raise ConditionFault(str(fault)) from None
    if program.result != types.BOOL:
        raise ConditionFault(f"must evaluate to bool but got {program.result}")
    return program
