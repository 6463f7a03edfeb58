"""Subresources: the table of their handlers, and the short handlers. Other subresources are rejected as not implemented."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from kubeloop.apiserver.handlers import verbs
from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.apiserver.handlers.subresources import evictions, scale
from kubeloop.apiserver.handlers.subresources import pods as bindings
from kubeloop.apiserver.handlers.subresources.tokens import create_token
from kubeloop.apiserver.registry.decoding import decode_object, media_type_of
from kubeloop.apiserver.registry.object_meta import check_name, metadata_of
from kubeloop.apiserver.registry.options import write_options
from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.merge.go_text import copy_tree
from kubeloop.meta.field_error import FieldError
from kubeloop.serving.answer import Answer
from kubeloop.types import JSONObject

Handler = Callable[[RequestScope], Awaitable[Answer]]


async def _update_status(scope: RequestScope) -> Answer:
    return await verbs.update(scope, status=True)


async def _patch_status(scope: RequestScope) -> Answer:
    return await verbs.patch(scope, status=True)


# ``/finalize`` of namespaces: the namespace controller removes its finalizer, and the removal of the last finalizer deletes the namespace.
# Source: k8s.io/kubernetes pkg/registry/core/namespace (FinalizeREST, namespaceFinalizeStrategy).


class FinalizeStrategy(Strategy):
    """The strategy of namespaces, except that ``spec.finalizers`` may change and status may not."""

    def __init__(self, base: Strategy) -> None:
        self._base = base
        self.standard_finalizers = base.standard_finalizers

    def default(self, obj: JSONObject) -> None:
        self._base.default(obj)

    def prepare_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> None:
        obj["status"] = copy_tree(old.get("status", {}))

    def validate_update(self, context: WriteRequest, obj: JSONObject, old: JSONObject) -> list[FieldError]:
        return self._base.validate_update(context, obj, old)

    def validate_name(self, name: str, prefix: bool) -> list[str]:
        return self._base.validate_name(name, prefix)


async def finalize(scope: RequestScope) -> Answer:
    """Replace the finalizers of a namespace."""
    options = write_options(scope.request, "UpdateOptions")
    resource = scope.resource
    decoded = decode_object(await scope.body(), media_type_of(scope.request.header("Content-Type")), resource)
    scope.accept_problems(decoded, options, resource.kind)
    check_name(metadata_of(decoded.obj), scope.info.name)

    async def change(_: JSONObject) -> JSONObject:
        return copy_tree(decoded.obj)

    finalizing = FinalizeStrategy(resource.strategy)
    finalized = replace(resource, strategy_source=lambda: finalizing)
    write = scope.write(resource=finalized, dry_run=options.dry_run, manager=scope.manager(options))
    outcome = await scope.services.writer.update(write, change, check_uid=True)
    return scope.services.renderer.object(resource, scope.accepted, scope.request, outcome.obj, stored=outcome.stored)


#: Subresource ("resource/subresource" if only one resource has it) -> verb -> handler.
_HANDLERS: dict[str, dict[str, Handler]] = {
    "status": {"get": verbs.get, "update": _update_status, "patch": _patch_status},
    "scale": {"get": scale.get, "update": scale.update, "patch": scale.patch},
    "certificatesigningrequests/approval": {"get": verbs.get, "update": _update_status, "patch": _patch_status},
    "pods/ephemeralcontainers": {"get": verbs.get, "update": verbs.update, "patch": verbs.patch},
    "pods/resize": {"get": verbs.get, "update": verbs.update, "patch": verbs.patch},
    "pods/binding": {"create": bindings.bind},
    "pods/eviction": {"create": evictions.evict},
    "serviceaccounts/token": {"create": create_token},
    "namespaces/finalize": {"update": finalize},
}


def handlers_of(resource: str, subresource: str) -> dict[str, Handler] | None:
    """Return the handlers of a subresource by verb, or None if the server does not implement the subresource."""
    return _HANDLERS.get(f"{resource}/{subresource}") or _HANDLERS.get(subresource)


__all__ = ["Handler", "handlers_of"]
