"""The types of the CEL variables of an admission request, for policies, match conditions and the type checks of policies.

Source: k8s.io/apiserver pkg/admission/plugin/cel (compile.go BuildRequestType and BuildNamespaceType, composition.go).
"""

from __future__ import annotations

from typing import Final

from kubeloop.cel import types
from kubeloop.cel.types import Type

_KIND: Final = types.struct("kubernetes.GroupVersionKind")
_RESOURCE: Final = types.struct("kubernetes.GroupVersionResource")
_USER: Final = types.struct("kubernetes.UserInfo")
_REQUEST: Final = types.struct("kubernetes.AdmissionRequest")
_NAMESPACE: Final = types.struct("kubernetes.Namespace")
_NAMESPACE_METADATA: Final = types.struct("kubernetes.NamespaceMetadata")
_NAMESPACE_SPEC: Final = types.struct("kubernetes.NamespaceSpec")
_NAMESPACE_STATUS: Final = types.struct("kubernetes.NamespaceStatus")
_NAMESPACE_CONDITION: Final = types.struct("kubernetes.NamespaceCondition")
_TEXTS: Final = types.list_of(types.STRING)
_TEXTS_BY_NAME: Final = types.map_of(types.STRING, types.STRING)

#: The fields of the struct types above, by type name.
ADMISSION_FIELDS: Final = {
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
    _NAMESPACE.name: {"metadata": _NAMESPACE_METADATA, "spec": _NAMESPACE_SPEC, "status": _NAMESPACE_STATUS},
    _NAMESPACE_METADATA.name: {
        "name": types.STRING,
        "generateName": types.STRING,
        "namespace": types.STRING,
        "labels": _TEXTS_BY_NAME,
        "annotations": _TEXTS_BY_NAME,
        "UID": types.STRING,
        "creationTimestamp": types.TIMESTAMP,
        "deletionGracePeriodSeconds": types.INT,
        "deletionTimestamp": types.TIMESTAMP,
        "generation": types.INT,
        "resourceVersion": types.STRING,
        "finalizers": _TEXTS,
    },
    _NAMESPACE_SPEC.name: {"finalizers": _TEXTS},
    _NAMESPACE_STATUS.name: {"conditions": types.list_of(_NAMESPACE_CONDITION), "phase": types.STRING},
    _NAMESPACE_CONDITION.name: {
        "status": types.STRING,
        "type": types.STRING,
        "lastTransitionTime": types.TIMESTAMP,
        "message": types.STRING,
        "reason": types.STRING,
    },
}


def admission_variables(*, params: Type | None = None, authorizer: bool = True, obj: Type = types.DYN) -> dict[str, Type]:
    """Return the type of each variable of an admission expression, by variable name.

    Args:
        params: The type of ``params``. None: the policy has no parameter kind.
        authorizer: Whether the expression may use ``authorizer``.
        obj: The type of ``object`` and ``oldObject``.
    """
    variables = {"object": obj, "oldObject": obj, "namespaceObject": _NAMESPACE, "request": _REQUEST}
    if params is not None:
        variables["params"] = params
    if authorizer:
        variables["authorizer"] = types.AUTHORIZER
        variables["authorizer.requestResource"] = types.RESOURCE_CHECK
    return variables


#: The type of ``variables``; its fields are the variables of a policy.
VARIABLES: Final = types.struct("kubernetes.variables")
#: Result types that later expressions see in a variable. A variable of another type has the type dyn.
_KEPT: Final = {types.BOOL, types.BYTES, types.DOUBLE, types.DURATION, types.INT, types.NULL, types.STRING, types.TIMESTAMP, types.UINT}


def variable_type(result: Type | None) -> Type:
    """Return the type of a variable ``variables.x`` in later expressions, given the result type of its expression.

    ``result`` is None if the expression did not compile; the variable has the type dyn then.
    """
    if result in _KEPT and result is not None:
        return result
    if result is not None and result.kind in ("list", "map"):
        return Type(result.kind, result.name, tuple(variable_type(one) for one in result.parameters))
    return types.DYN
