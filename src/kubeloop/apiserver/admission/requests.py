"""AdmissionRequests: a write as webhooks and expressions see it.

Source: k8s.io/apiserver pkg/admission/plugin/webhook/request; pkg/admission/plugin/cel (CreateAdmissionRequest).
"""

from __future__ import annotations

import copy

from kubeloop.apiserver.admission import NAMESPACES, Attributes
from kubeloop.apiserver.admission.matching import Match
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.meta.kinds import GroupVersionKind, GroupVersionResource
from kubeloop.types import JSONObject


async def versioned(objects: Objects, match: Match, attributes: Attributes, obj: JSONObject | None) -> JSONObject | None:
    """``obj`` in the version that was matched; the same tree where that is the request's own.

    Raises:
        ApiError: a webhook that converts failed.
    """
    if obj is None or match.resource is attributes.resource or attributes.kind is not None:
        return obj
    # Some converters share parts with what they are given, and then prune them.
    found = await objects.convert(attributes.resource, copy.deepcopy(obj), match.kind)
    if not match.resource.custom:
        match.resource.strategy.default(found)
    return found


def name_of(attributes: Attributes) -> str:
    """Return the name in the request, or the one that was generated for the object."""
    if attributes.name or attributes.obj is None:
        return attributes.name
    metadata = attributes.obj.get("metadata") or {}
    return str(metadata.get("name") or "")


def namespace_of(attributes: Attributes) -> str:
    """Return the namespace of the request. A Namespace is in itself."""
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
    asked = attributes.resource.gvr
    request: JSONObject = {
        "kind": _kind(kind),
        "resource": _resource(resource),
        "subResource": attributes.subresource,
        "requestKind": _kind(attributes.gvk),
        "requestResource": _resource(asked),
        "requestSubResource": attributes.subresource,
        "name": name,
        "namespace": attributes.namespace or (name if asked.group_resource == NAMESPACES else ""),
        "operation": attributes.operation,
        "userInfo": _user(attributes),
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    }
    for field in ("subResource", "requestSubResource", "name", "namespace"):
        if not request[field]:
            del request[field]
    return request


def _kind(kind: GroupVersionKind) -> JSONObject:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource(resource: GroupVersionResource) -> JSONObject:
    return {"group": resource.group, "version": resource.version, "resource": resource.resource}


def _user(attributes: Attributes) -> JSONObject:
    user = attributes.user
    found: JSONObject = {"username": user.name}
    if user.uid:
        found["uid"] = user.uid
    if user.groups:
        found["groups"] = list(user.groups)
    if user.extra:
        found["extra"] = {name: list(values) for name, values in user.extra.items()}
    return found
