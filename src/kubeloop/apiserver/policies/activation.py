"""The variables of CEL expressions about a request to be admitted: the object, the old one, its namespace, the request, an authorizer.

Source: k8s.io/apiserver pkg/admission/plugin/cel/compile.go (variables, BuildRequestType, BuildNamespaceType).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kubeloop.apiserver import api_errors
from kubeloop.apiserver.admission import NAMESPACES, Attributes
from kubeloop.apiserver.authentication import User
from kubeloop.apiserver.authorization import Access, Authorizer
from kubeloop.apiserver.authorization.access import parsed_fields
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.webhooks.matching import Match
from kubeloop.apiserver.webhooks.requests import name_of, namespace_of, request_tree
from kubeloop.apiserver.webhooks.versions import versioned
from kubeloop.cel import types, values
from kubeloop.cel.types import Type
from kubeloop.cel.values import AccessQuestion, ResourceCheck
from kubeloop.meta.kinds import GroupVersionKind, GroupVersionResource
from kubeloop.types import JSONObject

# The variable ``authorizer`` of expressions: what the server's own authorization would say. The same question is asked once.
#
# Source: k8s.io/apiserver pkg/cel/library/authz.go, pkg/admission/plugin/authorizer/caching_authorizer.go.


class CachingAuthorizer:
    """Answers the questions of expressions about one write: those about its user, and about service accounts."""

    def __init__(self, user: User, authorizer: Authorizer) -> None:
        self._user = user
        self._authorizer = authorizer
        self._known: dict[tuple[str, ...], values.AuthorizerDecision] = {}

    def variable(self) -> values.AuthorizerValue:
        """A value of the variable. It refers to what asks, which must not refer to it: nothing of a write is left to the collector."""
        return values.AuthorizerValue(self._decide)

    def _decide(self, question: AccessQuestion, verb: str) -> values.AuthorizerDecision:
        key = verb, question.by.service_account, *msgspec.structs.astuple(question)[1:]  # without who asks, who holds this table
        found = self._known.get(key)
        if found is None:
            decision = self._authorizer.authorize(self._access(question, verb))
            found = self._known[key] = values.AuthorizerDecision(decision.allowed, decision.reason)
        return found

    def _access(self, question: AccessQuestion, verb: str) -> Access:
        user, account = self._user, question.by.service_account
        if account:
            namespace = account.split(":")[2]
            user = User(account, ("system:serviceaccounts", f"system:serviceaccounts:{namespace}"))
        if question.path:
            return Access(user, verb, path=question.path, is_resource=False)
        where = question.group, "*", question.resource, question.subresource, question.namespace, question.name
        return Access(user, verb, *where, fields=parsed_fields(question.field_selector))


# What expressions see of one write: the object in the version that was matched, the request, the namespace, who may do what.
#
# Source: k8s.io/apiserver pkg/admission/plugin/cel (condition.go: CreateAdmissionRequest, CreateNamespaceObject).


class Activation:
    """Of one write, shared by all policies that are concerned; each is found out when it is first needed.

    ``objects`` by kind may be replaced by whoever mutates.
    """

    def __init__(self, attributes: Attributes, registry: Registry, objects: Objects, authorizer: Authorizer) -> None:
        self.attributes = attributes
        self.name, self.namespace = name_of(attributes), namespace_of(attributes)
        self._registry = registry
        self._store = objects
        self._authorizer = authorizer
        self._access: dict[str, Any] = {}
        self._seen: dict[GroupVersionKind, tuple[JSONObject | None, JSONObject | None]] = {}
        self._requests: dict[tuple[GroupVersionKind, GroupVersionResource], JSONObject] = {}
        self._namespace_object: JSONObject | None = None

    async def prepare(self, match: Match) -> None:
        """Have the object and the old one in the version of ``match``, and the namespace.

        Raises:
            ApiError: a webhook that converts failed. NotFound: the namespace is gone.
        """
        if match.kind not in self._seen:
            attributes = self.attributes
            obj = await versioned(self._store, match, attributes, attributes.obj)
            self._seen[match.kind] = obj, await versioned(self._store, match, attributes, attributes.old)
        if not self._access:
            await self._authorizer.prepare(self.attributes.user)
            self._access = self._authorizers()

    async def find_namespace(self) -> None:
        """Have the namespace at hand.

        Raises:
            NotFound
        """
        is_namespace = self.attributes.gvk == GroupVersionKind("", "v1", "Namespace")
        if self._namespace_object is not None or not self.namespace or is_namespace:
            return
        resource = self._registry.get(GroupVersionResource("", "v1", "namespaces"))
        found = None if resource is None else await self._store.get(resource, "", self.namespace)
        if found is None:
            raise api_errors.not_found(NAMESPACES, self.namespace)
        self._namespace_object = found.obj

    def object_of(self, match: Match) -> JSONObject | None:
        return self._seen[match.kind][0]

    def replace(self, match: Match, obj: JSONObject) -> None:
        """What expressions see from now on as the object, in the version of ``match``."""
        self._seen[match.kind] = obj, self._seen[match.kind][1]

    def values(self, match: Match, params: JSONObject | None, *, authorizer: bool = True) -> dict[str, Any]:
        """Of all variables but ``variables``."""
        found = self._about(match, match.resource.gvr) | {"params": params, "namespaceObject": self._namespace_object}
        if authorizer:
            found |= self._access
        return found

    def of_conditions(self, match: Match, params: JSONObject | None) -> dict[str, Any]:
        """What match conditions see: no namespace, and as resource that of the request."""
        return self._about(match, self.attributes.resource.gvr) | self._access | {"params": params, "namespaceObject": None}

    def _about(self, match: Match, resource: GroupVersionResource) -> dict[str, Any]:
        key = match.kind, resource
        request = self._requests.get(key)
        if request is None:
            request = self._requests[key] = request_tree(self.attributes, match.kind, resource, self.name)
        obj, old = self._seen[match.kind]
        return {"object": obj, "oldObject": old, "request": request}

    def _authorizers(self) -> dict[str, Any]:
        attributes = self.attributes
        authorizer, gvr = CachingAuthorizer(attributes.user, self._authorizer).variable(), attributes.resource.gvr
        asked = AccessQuestion(
            authorizer,
            group=gvr.group,
            resource=gvr.resource,
            subresource=attributes.subresource,
            namespace=self.namespace,
            name=self.name,
        )
        return {"authorizer": authorizer, "authorizer.requestResource": ResourceCheck(asked)}


# The variables of CEL expressions about a request to be admitted: the object, the old one, its namespace, the request, an authorizer.
#
# Source: k8s.io/apiserver pkg/admission/plugin/cel/compile.go (variables, BuildRequestType, BuildNamespaceType).


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
