"""The way of a request through the server, stage by stage. Each stage has one place; a refusal at any of them becomes a Status.

authentication, impersonation, authorization, routing, negotiation, the verb (decoding, defaulting, admission, validation, field ownership,
storage: see ``writing``), encoding. Nothing unexpected reaches a client: it is logged, and the answer is InternalError.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

from kubeloop.apiserver import refusals
from kubeloop.apiserver.answers import Answer, JSONObject, Reply, Takeovers, not_found_page, status_answer, status_object
from kubeloop.apiserver.authentication import impersonated
from kubeloop.apiserver.authorization import authorize, authorize_impersonation
from kubeloop.apiserver.encoding import encode
from kubeloop.apiserver.exchange import Exchange, Parts
from kubeloop.apiserver.kubelet.connecting import connecting
from kubeloop.apiserver.negotiation import JSON, PROTOBUF, YAML, Accepted, accepts_json, media_type_for_errors, negotiate
from kubeloop.apiserver.request_info import request_info
from kubeloop.apiserver.routing import PlainNotFound, find_handler, find_resource
from kubeloop.apiserver.storage import StorageFailed
from kubeloop.meta.errors import ApiError, UnknownKind
from kubeloop.serving.request import Request

_LOG = logging.getLogger(__name__)

#: Does what a request to one path asks for.
Action = Callable[[Request], Awaitable[Answer]]


class Documents(Protocol):
    """Serves paths that are no resources: discovery, OpenAPI, health, version."""

    def answer(self, request: Request) -> Answer | None:
        """None when the path is none of its own; ApiErrors become Statuses."""


#: Answers from this size on are compressed for clients that accept it, as upstream.
GZIP_FROM = 128 * 1024

_NO_CACHE = ("Cache-Control", "no-cache, private")


class Pipeline:
    """Answers requests; never raises but for cancellation.

    ``documents`` are asked in order for what is no resource, then ``actions``, by exact path.
    """

    def __init__(self, parts: Parts, actions: Mapping[str, Action] | None = None) -> None:
        self._parts = parts
        self._actions = dict(actions or {})
        self.documents: list[Documents] = []

    async def handle(self, request: Request) -> Reply:
        warnings: list[str] = []
        try:
            answer = await self._stages(request, warnings)
        except PlainNotFound:
            answer = not_found_page()
        except ApiError as refusal:
            answer = status_answer(refusal.status)
        except StorageFailed as fault:
            answer = status_answer(refusals.internal_error(str(fault)).status)
        except RecursionError:
            # What is stored nests less (see ``decoding``): it is the body of this request that was too deep to be looked at.
            answer = status_answer(refusals.bad_request("the body of the request exceeded max depth").status)
        except Exception:  # noqa: BLE001 - the last resort: a client gets a Status, the log gets the traceback
            _LOG.exception("%s %s failed", request.method, request.path)
            answer = status_answer(refusals.internal_error("the server met an unexpected condition; its log has the details").status)
        if isinstance(answer, Takeovers):
            return answer
        if not any(name == "Cache-Control" for name, _ in answer.headers):
            answer.headers.append(_NO_CACHE)
        answer.headers += [("Warning", f"299 - {_quoted(one)}") for one in dict.fromkeys(warnings)]
        if isinstance(answer, Answer):
            self._encode(request, answer)
        return answer

    async def _stages(self, request: Request, warnings: list[str]) -> Reply:
        user = self._parts.authenticator.authenticate(request)
        info = request_info(request)
        other = impersonated(request)
        if other is not None:
            authorize_impersonation(user, info)
            user = other
        authorize(user, info)
        if not info.is_resource:
            return await self._path(request)
        resource = find_resource(self._parts.registry, info)
        if resource.deprecation_warning:
            warnings.append(resource.deprecation_warning)
        handler = find_handler(resource, info, request.method)
        # What a connecting subresource answers is its backend's affair.
        accepted = Accepted() if connecting(info) else negotiate(request.header("Accept"), info.verb, custom=resource.custom)
        namespace = info.namespace if resource.namespaced else ""
        exchange = Exchange(self._parts, request, info, user, resource, accepted, namespace)
        try:
            answer = await handler(exchange)
            if isinstance(answer, Answer) and not answer.content_type and answer.status != 204:
                answer.content_type = accepted.media_type
            return answer
        finally:
            warnings += exchange.context.warnings

    async def _path(self, request: Request) -> Answer:
        for one in self.documents:
            answer = one.answer(request)
            if answer is not None:
                return answer
        action = self._actions.get(request.path)
        if action is None:
            raise PlainNotFound
        return await action(request)

    @staticmethod
    def _encode(request: Request, answer: Answer) -> None:
        """Objects become bytes in the media type that the client accepts."""
        if answer.object is not None:
            answer.body, answer.content_type = _encoded(answer.object, answer.content_type, request.header("Accept"))
        if answer.content_type == JSON and answer.body and _wants_pretty(request):
            answer.body = msgspec.json.format(answer.body, indent=2) + b"\n"
        if answer.body and len(answer.body) >= GZIP_FROM and _accepts_gzip(request):
            import zlib

            packer = zlib.compressobj(1, zlib.DEFLATED, 31)
            answer.body = packer.compress(answer.body) + packer.flush()
            answer.headers += [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]


def _encoded(tree: JSONObject, media_type: str, accept: str) -> tuple[bytes, str]:
    """``media_type`` empty: what the client asks for first. What has no protobuf form goes out as JSON where that is accepted too."""
    media_type = media_type or media_type_for_errors(accept)
    if media_type == YAML:
        from kubeloop.apiserver.yaml_body import dump_yaml

        return dump_yaml(tree), YAML
    if media_type == PROTOBUF:
        from kubeloop.codec import protobuf

        try:
            return protobuf.encode(tree), PROTOBUF
        except (protobuf.EncodeError, UnknownKind) as fault:
            if not accepts_json(accept):
                status = status_object(refusals.not_acceptable((JSON, YAML)).status)
                _LOG.warning("an answer has no protobuf form: %s", fault)
                return protobuf.encode(status), PROTOBUF
    return encode(tree), media_type if media_type.startswith(JSON) else JSON


def _wants_pretty(request: Request) -> bool:
    values = request.query.get("pretty")
    if values:
        return values[0] not in ("", "0", "false")
    # For people at a terminal or a browser, as upstream does.
    return request.header("User-Agent").startswith(("curl", "Wget", "Mozilla"))


def _accepts_gzip(request: Request) -> bool:
    return any(part.partition(";")[0].strip() == "gzip" for part in request.header("Accept-Encoding").split(","))


def _quoted(text: str) -> str:
    """A warning's text as a quoted string of RFC 9110, without line breaks."""
    clean = " ".join(text.split())
    return '"' + clean.replace("\\", "\\\\").replace('"', '\\"') + '"'
