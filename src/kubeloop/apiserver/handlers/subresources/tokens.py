"""``serviceaccounts/NAME/token``: the TokenRequest API, which issues tokens.

Source: k8s.io/kubernetes pkg/registry/core/serviceaccount/storage/token.go, pkg/apis/authentication/validation.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kubeloop.apiserver.authentication import token_claims
from kubeloop.apiserver.authentication.options import TokenSettings
from kubeloop.apiserver.authentication.token_claims import ACCOUNTS, NODES, PODS, SECRETS, BoundObjects, ObjectReference, TokenBinding
from kubeloop.apiserver.handlers.scope import RequestScope, ask_admission
from kubeloop.apiserver.ownership import token_request_scope
from kubeloop.apiserver.registry.decoding import decode_object, media_type_of
from kubeloop.apiserver.registry.object_meta import metadata_of, set_namespace, timestamp
from kubeloop.apiserver.registry.options import write_options
from kubeloop.endpoints import api_errors
from kubeloop.meta.field_error import FieldError, invalid
from kubeloop.meta.kinds import GroupKind, GroupResource, GroupVersionKind, GroupVersionResource
from kubeloop.meta.names import path_segment
from kubeloop.meta.strconv import go_quoted
from kubeloop.serving.answer import Answer
from kubeloop.types import JSONObject

TOKEN_REQUEST: Final = GroupVersionKind("authentication.k8s.io", "v1", "TokenRequest")
_KIND: Final = GroupKind(TOKEN_REQUEST.group, TOKEN_REQUEST.kind)
#: Name of the resource in Conflict errors.
_RESOURCE: Final = GroupResource(TOKEN_REQUEST.group, TOKEN_REQUEST.kind)

_DEFAULT_SECONDS: Final = 3600
_LEAST_SECONDS: Final = 600
_MOST_SECONDS: Final = 2**32
#: Seconds that kubelets request for pods without a duration: such tokens are valid for a year, and their use is reported after this time.
_OF_KUBELETS: Final = 3607
_YEAR: Final = 365 * 24 * 3600


async def create_token(scope: RequestScope) -> Answer:
    """Issue a token for the service account in the path. As upstream, a dry run issues a token too."""
    settings = scope.services.token_settings
    objects = BoundObjects(scope.services.objects, scope.services.registry)
    options = write_options(scope.request, "CreateOptions")
    media_type = media_type_of(scope.request.header("Content-Type"))
    decoded = decode_object(await scope.body(), media_type, scope.resource, TOKEN_REQUEST)
    scope.accept_problems(decoded, options, TOKEN_REQUEST.kind)
    request = decoded.obj
    metadata = metadata_of(request)
    name, namespace = scope.info.name, scope.namespace
    set_namespace(metadata, namespace)
    spec = _defaulted(request)
    owners, field_scope = scope.services.writer.owners, token_request_scope()
    owners.updated(field_scope, field_scope.empty, request, scope.manager(options))
    account: JSONObject = {}
    now = scope.services.clock.wall()

    async def fill() -> None:
        # Mutating plug-ins see the request as sent, before the default audiences are set.
        nonlocal account, spec
        spec = _defaulted(request)
        account = await _account(objects, request, namespace, name)
        spec["audiences"] = list(spec.get("audiences") or settings.audiences)
        request["metadata"]["creationTimestamp"] = timestamp(now)
        request["status"] = {"token": "", "expirationTimestamp": None}
        if errors := _errors(spec):
            raise api_errors.invalid(_KIND, "", errors)

    await ask_admission(scope, request, kind=TOKEN_REQUEST, name=name, dry_run=options.dry_run, between=fill)
    bound = await _bound(objects, spec["boundObjectRef"], namespace, name)
    if settings.max_expiration and spec["expirationSeconds"] > settings.max_expiration:
        requested, maximum = spec["expirationSeconds"], int(settings.max_expiration)
        scope.warnings.append(f"requested expiration of {requested} seconds shortened to {maximum} seconds")
        spec["expirationSeconds"] = maximum
    lasts, warn_after = spec["expirationSeconds"], 0
    if _is_extended(settings, spec, bound):
        lasts, warn_after = _YEAR, lasts
    data = token_claims.build_claims(settings.issuer, account, bound, spec["audiences"], now, lasts, warn_after)
    ends = now + timedelta(seconds=spec["expirationSeconds"])
    request["status"] = {"token": settings.signing.sign(data), "expirationTimestamp": timestamp(ends)}
    scope.annotations["authentication.kubernetes.io/issued-credential-id"] = f"JTI={data['jti']}"
    return scope.services.renderer.object(scope.resource, scope.accepted, scope.request, request, status=201)


async def _account(objects: BoundObjects, request: JSONObject, namespace: str, name: str) -> JSONObject:
    """Return the service account of a request, and set its names in the request.

    Raises:
        Invalid, NotFound, Conflict
    """
    metadata = metadata_of(request)
    if metadata.get("name") and metadata["name"] != name:
        error = invalid("metadata.name", metadata["name"], "must match the service account name if specified")
        raise api_errors.invalid(_KIND, name, [error])
    account = await objects.get(ACCOUNTS, namespace, name)
    if account is None:
        raise api_errors.not_found(ACCOUNTS.group_resource, name)
    _fill_metadata(metadata, account)
    return account


def _defaulted(request: JSONObject) -> JSONObject:
    spec: JSONObject = request.setdefault("spec", {})
    if spec.get("expirationSeconds") is None:
        spec["expirationSeconds"] = _DEFAULT_SECONDS
    spec.setdefault("boundObjectRef", None)
    return spec


def _fill_metadata(metadata: JSONObject, account: JSONObject) -> None:
    """Set the metadata of the request. Raises Conflict if the account was replaced."""
    own = account["metadata"]
    if metadata.get("uid") and metadata["uid"] != own["uid"]:
        reason = f"the UID in the token request ({metadata['uid']}) does not match the UID of the service account ({own['uid']})"
        raise api_errors.conflict(_RESOURCE, own["name"], reason)
    metadata |= {"name": own["name"], "namespace": own["namespace"], "uid": own["uid"]}


def _errors(spec: JSONObject) -> list[FieldError]:
    seconds = spec["expirationSeconds"]
    if seconds < _LEAST_SECONDS:
        return [invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")]
    if seconds > _MOST_SECONDS:
        return [invalid("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")]
    return []


def _is_extended(settings: TokenSettings, spec: JSONObject, bound: TokenBinding) -> bool:
    to_us = all(one in settings.audiences for one in spec["audiences"])
    return settings.extend and bound.pod is not None and spec["expirationSeconds"] == _OF_KUBELETS and to_us


async def _bound(objects: BoundObjects, reference: JSONObject | None, namespace: str, account: str) -> TokenBinding:
    """Return the objects to which the token is bound.

    Raises:
        NotFound, BadRequest, Conflict
    """
    if reference is None:
        return TokenBinding()
    name, kind, api_version = (reference.get(part) or "" for part in ("name", "kind", "apiVersion"))
    group, _, version = api_version.rpartition("/")
    if "/" in group:
        group, version = "", ""  # a malformed reference counts as a missing one
    result: JSONObject
    if not group and kind == "Pod":
        result = await _found(objects, PODS, namespace, name)
        if (result.get("spec") or {}).get("serviceAccountName", "") != account:
            quoted = go_quoted(account)
            raise api_errors.bad_request(
                f"cannot bind token for serviceaccount {quoted} to pod running with different serviceaccount name."
            )
        bound = TokenBinding(pod=ObjectReference.to(result), node=await _node_of(objects, result))
    elif not group and kind == "Node":
        result = await _found(objects, NODES, "", name)
        bound = TokenBinding(node=ObjectReference.to(result))
    elif not group and kind == "Secret":
        result = await _found(objects, SECRETS, namespace, name)
        bound = TokenBinding(secret=ObjectReference.to(result))
    else:
        raise api_errors.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    uid = reference.get("uid") or ""
    if uid and uid != result["metadata"]["uid"]:
        reason = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise api_errors.conflict(GroupResource(group, kind), name, reason)
    return bound


async def _found(objects: BoundObjects, gvr: GroupVersionResource, namespace: str, name: str) -> JSONObject:
    if not name:
        raise api_errors.bad_request("Name parameter required.")
    if faults := path_segment(name):
        raise api_errors.bad_request(f"Name parameter invalid: {go_quoted(name)}: {';'.join(faults)}")
    result = await objects.get(gvr, namespace, name)
    if result is None:
        raise api_errors.not_found(gvr.group_resource, name)
    return result


async def _node_of(objects: BoundObjects, pod: JSONObject) -> ObjectReference | None:
    """Return a reference to the node of a pod, without uid if the node does not exist."""
    name = pod["spec"].get("nodeName") or ""
    if not name:
        return None
    node = await objects.get(NODES, "", name)
    return ObjectReference.to(node) if node is not None else ObjectReference(name)
