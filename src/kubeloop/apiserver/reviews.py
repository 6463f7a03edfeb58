"""Resources that are asked but never stored: who am I, whose token is this, may somebody do that; and Bindings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kubeloop.apiserver.answers import Answer
from kubeloop.apiserver.authentication.reviewing import CREATE as AUTHENTICATION_REVIEWS
from kubeloop.apiserver.authorization.reviews import CREATE as AUTHORIZATION_REVIEWS
from kubeloop.apiserver.exchange import Exchange
from kubeloop.apiserver.subresources.bindings import bind
from kubeloop.meta.kinds import GroupResource

#: What POST does for resources without storage.
CREATE: dict[GroupResource, Callable[[Exchange], Awaitable[Answer]]] = {
    GroupResource("", "bindings"): bind,
    **AUTHENTICATION_REVIEWS,
    **AUTHORIZATION_REVIEWS,
}
