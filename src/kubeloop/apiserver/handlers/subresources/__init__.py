"""Subresources: views of an object with verbs of their own. Those that are not here are refused as not implemented."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kubeloop.apiserver.handlers import verbs
from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.apiserver.handlers.subresources import evictions, namespaces, scale
from kubeloop.apiserver.handlers.subresources import pods as bindings
from kubeloop.apiserver.handlers.subresources.tokens import create_token
from kubeloop.serving.answer import Answer

Handler = Callable[[RequestScope], Awaitable[Answer]]


async def _update_status(scope: RequestScope) -> Answer:
    return await verbs.update(scope, status=True)


async def _patch_status(scope: RequestScope) -> Answer:
    return await verbs.patch(scope, status=True)


#: By subresource ("resource/subresource" where only one resource has it), then by verb.
_HANDLERS: dict[str, dict[str, Handler]] = {
    "status": {"get": verbs.get, "update": _update_status, "patch": _patch_status},
    "scale": {"get": scale.get, "update": scale.update, "patch": scale.patch},
    "certificatesigningrequests/approval": {"get": verbs.get, "update": _update_status, "patch": _patch_status},
    "pods/ephemeralcontainers": {"get": verbs.get, "update": verbs.update, "patch": verbs.patch},
    "pods/resize": {"get": verbs.get, "update": verbs.update, "patch": verbs.patch},
    "pods/binding": {"create": bindings.bind},
    "pods/eviction": {"create": evictions.evict},
    "serviceaccounts/token": {"create": create_token},
    "namespaces/finalize": {"update": namespaces.finalize},
}


def handlers_of(resource: str, subresource: str) -> dict[str, Handler] | None:
    """Handlers by verb; None for a subresource that this server does not implement."""
    return _HANDLERS.get(f"{resource}/{subresource}") or _HANDLERS.get(subresource)


__all__ = ["Handler", "handlers_of"]
