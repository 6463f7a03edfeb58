"""Finds the resource and the handler of a request.

As in kube-apiserver's route table, an unknown path gets 404, and an unsupported method on an existing path gets 405.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from kubeloop.apiserver.handlers import component_status, verbs
from kubeloop.apiserver.handlers import reviews as reviews
from kubeloop.apiserver.handlers.kubelet.connecters import find_connecter
from kubeloop.apiserver.handlers.patch import is_apply, read_patch
from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.apiserver.handlers.subresources import handlers_of
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.meta.strconv import go_quoted
from kubeloop.serving.answer import Answer, Reply

Handler = Callable[[RequestScope], Awaitable[Reply]]

_VERBS: dict[str, Handler] = {
    "get": verbs.get,
    "list": verbs.list_,
    "watch": verbs.watch,
    "create": verbs.create,
    "update": verbs.update,
    "patch": verbs.patch,
    "delete": verbs.delete,
    "deletecollection": verbs.delete_collection,
}


class NoRoute(Exception):
    """No handler serves the path. The response is a plain-text page, not a Status."""


def find_resource(registry: Registry, info: RequestInfo) -> ServedResource:
    """Return the resource that a path names.

    Raises:
        NoRoute: The group is unknown, or it has custom resources only and this one is not among them or not at this path.
        NotFound: The group has no such version or resource, or no such path for it.
    """
    resource = registry.get(GroupVersionResource(info.group, info.version, info.resource))
    if resource is None:
        if _is_builtin_group(registry, info.group):
            raise api_errors.no_such_resource()
        raise NoRoute
    misplaced = bool(info.namespace) != resource.namespaced and not (resource.namespaced and not info.name_in_path)
    if misplaced and not _is_namespace_itself(resource, info):
        raise NoRoute if resource.custom else api_errors.no_such_resource()
    return resource


def find_handler(resource: ServedResource, info: RequestInfo, method: str) -> Handler:
    """Return the handler of a request.

    Raises:
        NotFound, MethodNotAllowed; NotImplemented for subresources that only Kubernetes has.
    """
    if resource.custom:
        return _of_custom(resource, info)
    nowhere = resource.namespaced and not info.namespace and not {"list", "watch"} & set(resource.verbs) and not info.name_in_path
    if nowhere or info.verb == "proxy":
        raise api_errors.no_such_resource()
    if info.subresource:
        return _of_subresource(resource, info, method)
    if method == "HEAD":
        raise api_errors.method_not_allowed()
    if info.rest:
        raise api_errors.no_such_resource()
    verb = info.verb
    if verb == "watch" and method != "GET":  # for the deprecated paths (/api/v1/watch/pods), which watch for any method
        raise api_errors.method_not_allowed()
    if info.name_in_path:
        if not {"get", "update", "patch", "delete"} & set(resource.verbs):
            raise api_errors.no_such_resource()
        if method == "POST":
            raise api_errors.method_not_allowed()
    elif verb not in ("list", "watch", "create", "deletecollection") or _across_namespaces(resource, info):
        raise api_errors.method_not_allowed()
    if verb == "watch" and "list" in resource.verbs and "watch" not in resource.verbs:
        raise api_errors.verb_not_supported(resource.gvr.group_resource, verb)
    if verb not in resource.verbs and not (verb == "watch" and "watch" in resource.verbs):
        raise api_errors.method_not_allowed()
    if resource.gvr.group_resource in reviews.CREATE:
        return reviews.CREATE[resource.gvr.group_resource]
    if resource.gvr.resource == "componentstatuses":
        return component_status.get if info.name_in_path else component_status.list_
    handler = _VERBS.get(verb)
    if handler is None:
        raise api_errors.method_not_allowed()
    return handler


def _of_custom(resource: ServedResource, info: RequestInfo) -> Handler:
    """Return the handler for a custom resource by the verb, because custom resources have no route table.

    The path after a subresource is ignored.

    Raises:
        NoRoute, NotFound, MethodNotAllowed, BadRequest
    """
    if _across_namespaces(resource, info):
        raise NoRoute
    handlers: Mapping[str, Handler] | None = _VERBS
    if info.subresource:
        if info.subresource not in resource.subresources:
            raise api_errors.not_found(resource.gvr.group_resource, info.name)
        handlers = handlers_of(resource.gvr.resource, info.subresource)
    handler = handlers.get(info.verb) if handlers else None
    if handler is None:
        raise api_errors.verb_not_supported(resource.gvr.group_resource, info.verb)
    if info.verb == "patch" and not info.name_in_path:
        return _patch_without_name
    if info.verb == "update" and not info.name_in_path:
        raise api_errors.bad_request("name must be provided")
    return handler


async def _patch_without_name(scope: RequestScope) -> Answer:
    """Reject a patch without a name. The type of the patch is checked first.

    Raises:
        UnsupportedMediaType, BadRequest
    """
    if not is_apply(scope.request):
        read_patch(b"", scope.request.header("Content-Type"), scope.resource)
    raise api_errors.bad_request("name must be provided")


def check_name_in_path(info: RequestInfo) -> None:
    """Check the name in the path. Raises BadRequest if it cannot be part of a storage key (upstream's path.IsValidPathSegmentName)."""
    name = info.name
    if not info.name_in_path or not (name in (".", "..") or "%" in name or "/" in name):
        return
    reason = f"may not be '{name}'" if name in (".", "..") else ";".join(f"may not contain '{one}'" for one in "/%" if one in name)
    raise api_errors.bad_request(f"Name parameter invalid: {go_quoted(name)}: {reason}")


def _of_subresource(resource: ServedResource, info: RequestInfo, method: str) -> Handler:
    if info.subresource not in resource.subresources:
        raise api_errors.no_such_resource()
    if not info.name_in_path:
        raise api_errors.bad_request("name must be provided")
    connects = find_connecter(info)
    if connects is not None:
        if info.rest and not connects.paths:
            raise api_errors.no_such_resource()
        if method not in connects.methods:
            raise api_errors.method_not_allowed()
        return connects.handler
    if info.rest:
        raise api_errors.no_such_resource()
    if method == "HEAD":
        raise api_errors.method_not_allowed()
    handlers = handlers_of(resource.gvr.resource, info.subresource)
    if handlers is None:
        raise api_errors.not_implemented(f"{resource.gvr.resource}/{info.subresource}")
    handler = handlers.get(info.verb)
    if handler is None:
        raise api_errors.method_not_allowed()
    return handler


def _across_namespaces(resource: ServedResource, info: RequestInfo) -> bool:
    """Return whether a request for a namespaced resource names no namespace. Only list, watch and reviews may do that."""
    return resource.namespaced and not info.namespace and info.verb not in ("list", "watch")


def _is_namespace_itself(resource: ServedResource, info: RequestInfo) -> bool:
    """Return whether the path is ``/namespaces/x``, in which x is both the namespace and the name."""
    return resource.gvr.resource == "namespaces" and not resource.gvr.group and info.namespace == info.name


def _is_builtin_group(registry: Registry, group: str) -> bool:
    return any(one.gvr.group == group and not one.custom for one in registry)
