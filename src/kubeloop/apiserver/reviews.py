"""Resources that are asked but never stored: who am I, whose token is this, may somebody do that.

Source: authentication.k8s.io/v1, authorization.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.answers import Answer
from kubeloop.apiserver.authentication import User
from kubeloop.apiserver.authorization.reviews import CREATE as AUTHORIZATION_REVIEWS
from kubeloop.apiserver.exchange import Exchange
from kubeloop.apiserver.object_meta import timestamp
from kubeloop.apiserver.reviewing import answer_review, decode_review
from kubeloop.apiserver.subresources.bindings import bind
from kubeloop.meta.kinds import GroupResource

JSONObject = dict[str, Any]

_AUTHENTICATION = "authentication.k8s.io"
_AUDIENCE = "https://kubernetes.default.svc.cluster.local"


async def _self_subject(exchange: Exchange) -> Answer:
    obj = await decode_review(exchange)
    obj["metadata"]["creationTimestamp"] = timestamp(exchange.parts.clock.wall())
    obj["status"] = {"userInfo": _user_info(exchange.user)}
    return answer_review(exchange, obj)


async def _token(exchange: Exchange) -> Answer:
    obj = await decode_review(exchange)
    token = (obj.get("spec") or {}).get("token", "")
    if not token:
        raise refusals.bad_request("token is required for TokenReview in authentication")
    user = await exchange.parts.authenticator.review(token)
    if user is None:
        obj["status"] = {"user": {}, "error": "invalid bearer token"}
    else:
        obj["status"] = {"authenticated": True, "user": _user_info(user), "audiences": [_AUDIENCE]}
    return answer_review(exchange, obj)


def _user_info(user: User) -> JSONObject:
    info: JSONObject = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {name: list(values) for name, values in user.extra.items()}
    return info


#: What POST does for resources without storage.
CREATE: dict[GroupResource, Callable[[Exchange], Awaitable[Answer]]] = {
    GroupResource("", "bindings"): bind,
    GroupResource(_AUTHENTICATION, "selfsubjectreviews"): _self_subject,
    GroupResource(_AUTHENTICATION, "tokenreviews"): _token,
    **AUTHORIZATION_REVIEWS,
}
