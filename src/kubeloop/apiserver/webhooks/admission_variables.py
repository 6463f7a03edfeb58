"""The variables of CEL expressions about a request to be admitted: the object, the old one, its namespace, the request, an authorizer.

Source: k8s.io/apiserver pkg/admission/plugin/cel/compile.go (variables, BuildRequestType, BuildNamespaceType).
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

#: Fields of the types of those variables, by the type's name.
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


def admission_variables(*, params: bool = False, authorizer: bool = True) -> dict[str, Type]:
    """Types of the variables by name; ``params`` for policies that have a kind of parameters."""
    found = {"object": types.DYN, "oldObject": types.DYN, "namespaceObject": _NAMESPACE, "request": _REQUEST}
    if params:
        found["params"] = types.DYN
    if authorizer:
        found["authorizer"] = types.AUTHORIZER
        found["authorizer.requestResource"] = types.RESOURCE_CHECK
    return found
