"""What expressions see of one write: the object in the version that was matched, the request, the namespace, who may do what.

Source: k8s.io/apiserver pkg/admission/plugin/cel (condition.go: CreateAdmissionRequest, CreateNamespaceObject).
"""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.admission import NAMESPACES, Attributes
from kubeloop.apiserver.authorization import Authorizer
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.policies.access import Deciding
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.webhooks.matching import Match
from kubeloop.apiserver.webhooks.requests import name_of, namespace_of, request_tree
from kubeloop.apiserver.webhooks.versions import versioned
from kubeloop.cel.values import AccessQuestion, ResourceCheck
from kubeloop.meta.kinds import GroupVersionKind, GroupVersionResource

JSONObject = dict[str, Any]


class Facts:
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
            raise refusals.not_found(NAMESPACES, self.namespace)
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
        authorizer, gvr = Deciding(attributes.user, self._authorizer).variable(), attributes.resource.gvr
        asked = AccessQuestion(
            authorizer,
            group=gvr.group,
            resource=gvr.resource,
            subresource=attributes.subresource,
            namespace=self.namespace,
            name=self.name,
        )
        return {"authorizer": authorizer, "authorizer.requestResource": ResourceCheck(asked)}
