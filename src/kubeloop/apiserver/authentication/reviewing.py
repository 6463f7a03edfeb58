"""SelfSubjectReview and TokenReview. Source: k8s.io/kubernetes pkg/registry/authentication."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from kubeloop.apiserver import refusals
from kubeloop.apiserver.answers import Answer
from kubeloop.apiserver.authentication.chain import NotAuthenticated
from kubeloop.apiserver.authentication.users import User
from kubeloop.apiserver.exchange import Exchange
from kubeloop.apiserver.object_meta import timestamp
from kubeloop.apiserver.reviewing import answer_review, decode_review
from kubeloop.meta.kinds import GroupResource

JSONObject = dict[str, Any]

_GROUP: Final = "authentication.k8s.io"


async def _self_subject(exchange: Exchange) -> Answer:
    obj = await decode_review(exchange)
    # Of what was sent, nothing is answered.
    answer = {name: obj[name] for name in ("apiVersion", "kind")}
    answer["metadata"] = {"creationTimestamp": timestamp(exchange.parts.clock.wall())}
    answer["status"] = {"userInfo": _user_info(exchange.user)}
    return answer_review(exchange, answer)


async def _token(exchange: Exchange) -> Answer:
    obj = await decode_review(exchange)
    spec = obj.get("spec") or {}
    if not spec.get("token"):
        raise refusals.bad_request("token is required for TokenReview in authentication")
    status: JSONObject = obj.setdefault("status", {})
    try:
        proof = await exchange.parts.authenticator.review(spec["token"], tuple(spec.get("audiences") or ()))
    except NotAuthenticated as refused:
        status["user"] = status.get("user") or {}
        status.pop("authenticated", None)
        faults = tuple(dict.fromkeys(refused.faults))
        if faults:
            status["error"] = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
    else:
        status |= {"authenticated": True, "user": _user_info(proof.user), "audiences": list(proof.audiences)}
    return answer_review(exchange, obj)


def _user_info(user: User) -> JSONObject:
    info: JSONObject = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {name: list(values) for name, values in sorted(user.extra.items())}
    return info


#: What POST does.
CREATE: dict[GroupResource, Callable[[Exchange], Awaitable[Answer]]] = {
    GroupResource(_GROUP, "selfsubjectreviews"): _self_subject,
    GroupResource(_GROUP, "tokenreviews"): _token,
}
