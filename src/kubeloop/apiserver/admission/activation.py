"""The CEL variables of an admission request: object, oldObject, namespaceObject, request, params and authorizer.

Source: k8s.io/apiserver pkg/admission/plugin/cel/compile.go (variables, BuildRequestType, BuildNamespaceType).
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubeloop.apiserver.admission import NAMESPACES, Attributes
from kubeloop.apiserver.admission.matching import Match, convert_to_match, name_of, namespace_of, request_tree
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.cel import values
from kubeloop.cel.values import AccessCheck, ResourceCheck
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import Access, Authorizer, User, parsed_fields
from kubeloop.meta.kinds import GroupVersionKind, GroupVersionResource
from kubeloop.types import JSONObject

# The CEL variable ``authorizer``: it asks the server's own authorizer, and caches each decision.
#
# Source: k8s.io/apiserver pkg/cel/library/authz.go, pkg/admission/plugin/authorizer/caching_authorizer.go.


class CachingAuthorizer:
    """Authorizes the checks that CEL expressions make during one write, for its user or a service account, and caches the decisions."""

    def __init__(self, user: User, authorizer: Authorizer) -> None:
        self._user = user
        self._authorizer = authorizer
        self._known: dict[tuple[str, ...], values.AuthorizerDecision] = {}

    def variable(self) -> values.AuthorizerValue:
        """Return the value of the CEL variable ``authorizer``.

        This object does not keep the value, because a reference cycle would outlive the write.
        """
        return values.AuthorizerValue(self._decide)

    def _decide(self, check: AccessCheck, verb: str) -> values.AuthorizerDecision:
        key = (
            verb,
            check.by.service_account,
            *msgspec.structs.astuple(check)[1:],
        )  # Keep the variable itself out of what it refers to.
        result = self._known.get(key)
        if result is None:
            decision = self._authorizer.authorize(self._access(check, verb))
            result = self._known[key] = values.AuthorizerDecision(decision.allowed, decision.reason)
        return result

    def _access(self, check: AccessCheck, verb: str) -> Access:
        user, account = self._user, check.by.service_account
        if account:
            namespace = account.split(":")[2]
            user = User(account, ("system:serviceaccounts", f"system:serviceaccounts:{namespace}"))
        if check.path:
            return Access(user, verb, path=check.path, is_resource=False)
        where = check.group, "*", check.resource, check.subresource, check.namespace, check.name
        return Access(user, verb, *where, fields=parsed_fields(check.field_selector))


# The variables of one write: the object in the version that a rule matched, the request, the namespace, the authorizer.
#
# Source: k8s.io/apiserver pkg/admission/plugin/cel (condition.go: CreateAdmissionRequest, CreateNamespaceObject).


class Activation:
    """The CEL variables of one write, which all matching policies and webhooks share. Mutating policies replace the object.

    The object, the request and the namespace are converted or read when the first policy or webhook needs them.
    """

    def __init__(self, attributes: Attributes, registry: Registry, objects: Objects, authorizer: Authorizer) -> None:
        """Create the variables; no value is computed yet.

        Args:
            attributes: The write.
            registry: The served resources.
            objects: Converts and reads objects.
            authorizer: Decides the checks of the variable ``authorizer``.
        """
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
        """Convert the object and the old object to the version of ``match``, and prepare the variable ``authorizer``.

        Raises:
            ApiError: A conversion webhook failed.
        """
        if match.kind not in self._seen:
            attributes = self.attributes
            obj = await convert_to_match(self._store, match, attributes, attributes.obj)
            self._seen[match.kind] = obj, await convert_to_match(self._store, match, attributes, attributes.old)
        if not self._access:
            await self._authorizer.prepare(self.attributes.user)
            self._access = self._authorizers()

    async def find_namespace(self) -> None:
        """Read the namespace of the request for ``namespaceObject``, unless it was read before or the request has none.

        Raises:
            NotFound: The namespace does not exist.
        """
        is_namespace = self.attributes.gvk == GroupVersionKind("", "v1", "Namespace")
        if self._namespace_object is not None or not self.namespace or is_namespace:
            return
        resource = self._registry.get(GroupVersionResource("", "v1", "namespaces"))
        stored = None if resource is None else await self._store.get(resource, "", self.namespace)
        if stored is None:
            raise api_errors.not_found(NAMESPACES, self.namespace)
        self._namespace_object = stored.obj

    def object_of(self, match: Match) -> JSONObject | None:
        """Return the object in the version of ``match``, or None for a deletion."""
        return self._seen[match.kind][0]

    def replace(self, match: Match, obj: JSONObject) -> None:
        """Set the object for all later expressions, in the version of ``match``."""
        self._seen[match.kind] = obj, self._seen[match.kind][1]

    def values(self, match: Match, params: JSONObject | None, *, authorizer: bool = True) -> dict[str, Any]:
        """Return the values of all variables except ``variables``."""
        result = self._about(match, match.resource.gvr) | {"params": params, "namespaceObject": self._namespace_object}
        if authorizer:
            result |= self._access
        return result

    def of_conditions(self, match: Match, params: JSONObject | None) -> dict[str, Any]:
        """Return the variables for match conditions, which have no ``namespaceObject`` and see the resource of the request itself."""
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
        requested = AccessCheck(
            authorizer,
            group=gvr.group,
            resource=gvr.resource,
            subresource=attributes.subresource,
            namespace=self.namespace,
            name=self.name,
        )
        return {"authorizer": authorizer, "authorizer.requestResource": ResourceCheck(requested)}
