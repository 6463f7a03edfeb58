"""Resources that are asked but never stored: who am I, whose token is this, may somebody do that.

Source: authentication.k8s.io/v1, authorization.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.answers import Answer
from kubeloop.apiserver.asking_admission import ask_admission
from kubeloop.apiserver.authentication import MASTERS, User
from kubeloop.apiserver.authorization import PUBLIC_PATHS, authorize
from kubeloop.apiserver.decoding import decode_object, media_type_of
from kubeloop.apiserver.exchange import Exchange
from kubeloop.apiserver.object_meta import metadata_of, set_namespace, timestamp
from kubeloop.apiserver.options import write_options
from kubeloop.apiserver.request_info import RequestInfo
from kubeloop.apiserver.subresources.pods import bind
from kubeloop.meta.errors import Forbidden
from kubeloop.meta.field_error import FieldError, invalid
from kubeloop.meta.kinds import GroupKind, GroupResource

JSONObject = dict[str, Any]

_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
_AUDIENCE = "https://kubernetes.default.svc.cluster.local"


async def _self_subject(exchange: Exchange) -> Answer:
    obj = await _decode(exchange)
    obj["metadata"]["creationTimestamp"] = timestamp(exchange.parts.clock.wall())
    obj["status"] = {"userInfo": _user_info(exchange.user)}
    return _answer(exchange, obj)


async def _token(exchange: Exchange) -> Answer:
    obj = await _decode(exchange)
    token = (obj.get("spec") or {}).get("token", "")
    if not token:
        raise refusals.bad_request("token is required for TokenReview in authentication")
    user = await exchange.parts.authenticator.review(token)
    if user is None:
        obj["status"] = {"user": {}, "error": "invalid bearer token"}
    else:
        obj["status"] = {"authenticated": True, "user": _user_info(user), "audiences": [_AUDIENCE]}
    return _answer(exchange, obj)


async def _access(exchange: Exchange) -> Answer:
    obj = await _decode(exchange)
    spec = obj.get("spec") or {}
    itself = exchange.resource.kind == "SelfSubjectAccessReview"
    errors = _access_errors(spec, itself=itself)
    namespace = metadata_of(obj).get("namespace")
    attributes = spec.get("resourceAttributes") or {}
    if exchange.resource.kind == "LocalSubjectAccessReview" and attributes.get("namespace", "") != namespace:
        errors.append(invalid("spec.resourceAttributes.namespace", attributes.get("namespace", ""), "must match metadata.namespace"))
    if errors:
        raise refusals.invalid(GroupKind(_AUTHORIZATION, ""), "", errors)
    user = exchange.user if itself else User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""))
    try:
        authorize(user, _asked(spec))
        obj["status"] = {"allowed": True}
    except Forbidden:
        obj["status"] = {"allowed": False}
    return _answer(exchange, obj)


async def _rules(exchange: Exchange) -> Answer:
    """All there is to tell without roles: administrators may do everything, others read the public paths."""
    obj = await _decode(exchange)
    everything = MASTERS in exchange.user.groups
    resource_rules = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}] if everything else []
    paths = ["*"] if everything else [path for one in PUBLIC_PATHS for path in (one, f"{one}/*")]
    verbs = ["*"] if everything else ["get"]
    obj["status"] = {"resourceRules": resource_rules, "nonResourceRules": [{"verbs": verbs, "nonResourceURLs": paths}], "incomplete": False}
    return _answer(exchange, obj)


def _access_errors(spec: JSONObject, *, itself: bool) -> list[FieldError]:
    errors = []
    if ("resourceAttributes" in spec) == ("nonResourceAttributes" in spec):
        shown = spec.get("resourceAttributes")
        errors.append(
            invalid("spec.resourceAttributes", shown, "exactly one of nonResourceAttributes or resourceAttributes must be specified")
        )
    if not itself and not spec.get("user") and not spec.get("groups"):
        errors.append(invalid("spec.user", "", "at least one of user or group must be specified"))
    return errors


def _asked(spec: JSONObject) -> RequestInfo:
    if "nonResourceAttributes" in spec:
        attributes = spec["nonResourceAttributes"]
        return RequestInfo(attributes.get("verb", ""), attributes.get("path", ""))
    attributes = spec["resourceAttributes"]
    names = ("group", "version", "resource", "subresource", "namespace", "name")
    return RequestInfo(attributes.get("verb", ""), "", is_resource=True, **{name: attributes.get(name, "") for name in names})


def _user_info(user: User) -> JSONObject:
    info: JSONObject = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {name: list(values) for name, values in user.extra.items()}
    return info


async def _decode(exchange: Exchange) -> JSONObject:
    options = write_options(exchange.request, "CreateOptions")
    obj = decode_object(await exchange.body(), media_type_of(exchange.request.header("Content-Type")), exchange.resource).obj
    set_namespace(metadata_of(obj), exchange.namespace)
    # A review is stored nowhere, but its answer says who asked.
    owners = exchange.parts.writer.owners
    scope = owners.scope(exchange.resource, "")
    owners.updated(scope, scope.empty, obj, exchange.manager(options))
    await ask_admission(exchange, obj, name=metadata_of(obj).get("name") or "", dry_run=options.dry_run)
    return obj


def _answer(exchange: Exchange, obj: JSONObject) -> Answer:
    return exchange.parts.renderer.object(exchange.resource, exchange.accepted, exchange.request, obj, status=201)


#: What POST does for resources without storage.
CREATE: dict[GroupResource, Callable[[Exchange], Awaitable[Answer]]] = {
    GroupResource("", "bindings"): bind,
    GroupResource(_AUTHENTICATION, "selfsubjectreviews"): _self_subject,
    GroupResource(_AUTHENTICATION, "tokenreviews"): _token,
    GroupResource(_AUTHORIZATION, "subjectaccessreviews"): _access,
    GroupResource(_AUTHORIZATION, "selfsubjectaccessreviews"): _access,
    GroupResource(_AUTHORIZATION, "localsubjectaccessreviews"): _access,
    GroupResource(_AUTHORIZATION, "selfsubjectrulesreviews"): _rules,
}
