"""Decides whether the rules and selectors of a webhook or policy match a write, and builds the AdmissionRequest that they see.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/generic/webhook.go (ShouldCallHook), webhook/predicates, webhook/request;
pkg/admission/plugin/cel (CreateAdmissionRequest).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kubeloop.apiserver.admission import NAMESPACES, Attributes
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.endpoints import api_errors
from kubeloop.meta.kinds import GroupVersionKind, GroupVersionResource
from kubeloop.meta.selectors import Selector
from kubeloop.types import JSONObject

_NAMESPACES: Final = GroupVersionResource("", "v1", "namespaces")
_GROUP: Final = "admissionregistration.k8s.io"
#: No configured webhook or policy may prevent an administrator from repairing the configuration.
_EXEMPT: Final = frozenset(
    f"{kind}{part}" for kind in ("Validating", "Mutating") for part in ("WebhookConfiguration", "AdmissionPolicy", "AdmissionPolicyBinding")
)


@dataclass(frozen=True, slots=True)
class Match:
    """The resource and kind by which a rule matches a write: those of the request, or of another version of the resource."""

    resource: ServedResource
    kind: GroupVersionKind


def is_exempt(attributes: Attributes) -> bool:
    """Return whether a write is exempt from webhooks and policies, because it changes their own configuration."""
    return attributes.gvk.group == _GROUP and attributes.gvk.kind in _EXEMPT


class Matcher:
    """Matches the rules and namespace selectors of webhooks and policies with writes."""

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects
        self._equivalents: dict[GroupVersionResource, list[ServedResource]] = {}
        self._revision = -1

    def by_rules(self, rules: Sequence[JSONObject], attributes: Attributes, *, equivalent: bool, name: str = "") -> Match | None:
        """Return the match of the first rule that matches, or None if none does.

        Args:
            rules: Rules with operations.
            attributes: The write.
            equivalent: Rules also match the resource in its other versions.
            name: Name of the object, for ``resourceNames``.
        """
        resource = attributes.resource
        if any(rule_matches(rule, attributes, resource.gvr) and _names_object(rule, name) for rule in rules):
            return Match(resource, attributes.gvk)
        if not equivalent:
            return None
        others = self._others(resource)
        for rule in rules:
            for other in others:
                if rule_matches(rule, attributes, other.gvr) and _names_object(rule, name):
                    return Match(other, attributes.kind or other.gvk)
        return None

    def _others(self, resource: ServedResource) -> list[ServedResource]:
        """Return the resource in its other served versions."""
        if self._registry.revision != self._revision:
            self._equivalents.clear()
            self._revision = self._registry.revision
        equivalents = self._equivalents.get(resource.gvr)
        if equivalents is None:
            same = (one for one in self._registry if one.served and one.storage_prefix == resource.storage_prefix)
            equivalents = self._equivalents[resource.gvr] = [one for one in same if one.gvr != resource.gvr]
        return equivalents

    async def matches_namespace(self, selector: Selector, attributes: Attributes) -> bool:
        """Return whether a namespace selector matches the write.

        Raises:
            NotFound: The namespace whose labels would decide does not exist.
        """
        is_namespace = attributes.resource.gvr.resource == NAMESPACES.resource
        if selector.everything or (not attributes.namespace and not is_namespace):
            return True
        if is_namespace and not attributes.subresource and attributes.operation in ("CREATE", "UPDATE"):
            assert attributes.obj is not None
            return selector.matches(attributes.obj["metadata"].get("labels"))
        name = attributes.namespace or attributes.name
        resource = self._registry.get(_NAMESPACES)
        assert resource is not None
        namespace = await self._objects.get(resource, "", name)
        if namespace is None:
            raise api_errors.not_found(NAMESPACES, name)
        return selector.matches(namespace.obj["metadata"].get("labels"))


def matches_object(selector: Selector, attributes: Attributes) -> bool:
    """Return whether an object selector matches the new or the old object."""
    if selector.everything:
        return True
    objects = (attributes.obj, attributes.old)
    return any(one is not None and selector.matches((one.get("metadata") or {}).get("labels")) for one in objects)


def rule_matches(rule: JSONObject, attributes: Attributes, resource: GroupVersionResource) -> bool:
    """Return whether a rule matches the operation on ``resource``, which is the resource of the request or another version of it."""
    return (
        _in_scope(rule.get("scope") or "*", attributes, resource)
        and _named(rule.get("operations"), attributes.operation)
        and _named(rule.get("apiGroups"), resource.group)
        and _named(rule.get("apiVersions"), resource.version)
        and _names_resource(rule.get("resources") or (), resource.resource, attributes.subresource)
    )


def _names_object(rule: JSONObject, name: str) -> bool:
    names = rule.get("resourceNames")
    return not names or name in names


def _named(values: Any, value: str) -> bool:
    return any(one in ("*", value) for one in values or ())


def _in_scope(scope: str, attributes: Attributes, resource: GroupVersionResource) -> bool:
    if scope == "*":
        return True
    inside = bool(attributes.namespace) and resource != _NAMESPACES
    return inside == (scope == "Namespaced")


def _names_resource(values: Any, resource: str, subresource: str) -> bool:
    for one in values:
        name, _, sub = one.partition("/")
        if name in ("*", resource) and sub in ("*", subresource):
            return True
    return False


# AdmissionRequests: a write in the form that webhooks and CEL expressions see.
#
# Source: k8s.io/apiserver pkg/admission/plugin/webhook/request; pkg/admission/plugin/cel (CreateAdmissionRequest).


async def convert_to_match(objects: Objects, match: Match, attributes: Attributes, obj: JSONObject | None) -> JSONObject | None:
    """Convert an object to the version that a rule matched.

    Args:
        objects: Converts the object.
        match: The rule's match.
        attributes: The write.
        obj: The object in the version of the request; None stays None.

    Returns:
        The converted object, or ``obj`` itself if the rule matched the version of the request.

    Raises:
        ApiError: A conversion webhook failed.
    """
    if obj is None or match.resource is attributes.resource or attributes.kind is not None:
        return obj
    # Some converters return parts of their input and prune them later, so they get a copy.
    result = await objects.convert(attributes.resource, copy.deepcopy(obj), match.kind)
    if not match.resource.custom:
        match.resource.strategy.default(result)
    return result


def name_of(attributes: Attributes) -> str:
    """Return the name in the request, or else the name of the object, which may be generated."""
    if attributes.name or attributes.obj is None:
        return attributes.name
    metadata = attributes.obj.get("metadata") or {}
    return str(metadata.get("name") or "")


def namespace_of(attributes: Attributes) -> str:
    """Return the namespace of the request. The namespace of a Namespace object is its own name."""
    if attributes.namespace or attributes.resource.gvr.group_resource != NAMESPACES:
        return attributes.namespace
    return name_of(attributes)


def request_tree(attributes: Attributes, kind: GroupVersionKind, resource: GroupVersionResource, name: str) -> JSONObject:
    """Return an AdmissionRequest without its objects.

    Args:
        attributes: The write.
        kind: The kind that a rule matched.
        resource: The resource that a rule matched.
        name: Name of the object; may be empty.
    """
    requested = attributes.resource.gvr
    request: JSONObject = {
        "kind": _kind_tree(kind),
        "resource": _resource_tree(resource),
        "subResource": attributes.subresource,
        "requestKind": _kind_tree(attributes.gvk),
        "requestResource": _resource_tree(requested),
        "requestSubResource": attributes.subresource,
        "name": name,
        "namespace": attributes.namespace or (name if requested.group_resource == NAMESPACES else ""),
        "operation": attributes.operation,
        "userInfo": _user(attributes),
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    }
    for field in ("subResource", "requestSubResource", "name", "namespace"):
        if not request[field]:
            del request[field]
    return request


def _kind_tree(kind: GroupVersionKind) -> JSONObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource_tree(resource: GroupVersionResource) -> JSONObject:
    return {"group": resource.group, "version": resource.version, "resource": resource.resource}


def _user(attributes: Attributes) -> JSONObject:
    user = attributes.user
    result: JSONObject = {"username": user.name}
    if user.uid:
        result["uid"] = user.uid
    if user.groups:
        result["groups"] = list(user.groups)
    if user.extra:
        result["extra"] = {name: list(values) for name, values in user.extra.items()}
    return result
