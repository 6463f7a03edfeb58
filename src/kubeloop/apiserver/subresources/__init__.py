"""Subresources: views of an object with verbs of their own. Those that are not here are refused as not implemented."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kubeloop.apiserver import verbs
from kubeloop.apiserver.answers import Answer
from kubeloop.apiserver.authentication.service_accounts.requesting import create_token
from kubeloop.apiserver.request_scope import RequestScope
from kubeloop.apiserver.subresources import bindings, evictions, namespaces, scale

Handler = Callable[[RequestScope], Awaitable[Answer]]


async def _update_status(exchange: RequestScope) -> Answer:
    return await verbs.update(exchange, status=True)


async def _patch_status(exchange: RequestScope) -> Answer:
    return await verbs.patch(exchange, status=True)


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
