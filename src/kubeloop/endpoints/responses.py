"""Responses of an API server (Status, text, JSON), and their encoding: media type, indentation and compression follow the request."""

from __future__ import annotations

import logging
import zlib
from collections.abc import AsyncIterator

import msgspec

from kubeloop.endpoints import api_errors
from kubeloop.endpoints.encoding import encode
from kubeloop.endpoints.negotiation import JSON, PROTOBUF, YAML, accepts_json, asks_for_indented, media_type_for_errors
from kubeloop.meta.errors import UnknownKind
from kubeloop.meta.status import Status, StatusDetails
from kubeloop.serving.answer import Answer, Hijack, SocketTakeover, StreamingResponse
from kubeloop.serving.request import Request
from kubeloop.types import JSONObject

#: Replies that change the connection's protocol.
Takeovers = (Hijack, SocketTakeover)


#: Go's header for plain text, so that browsers run no scripts in it.
NO_SNIFFING = ("X-Content-Type-Options", "nosniff")


def text(body: str, status: int = 200) -> Answer:
    """Return a plain-text response, such as those of the health endpoints."""
    return Answer(status, body=body.encode(), content_type="text/plain; charset=utf-8", headers=[NO_SNIFFING])


def indented(tree: JSONObject) -> Answer:
    """Return a response of indented JSON, for endpoints without content negotiation."""
    return Answer(body=msgspec.json.format(msgspec.json.encode(tree), indent=2), content_type="application/json", verbatim=True)


def not_found_page() -> Answer:
    """Return Go's plain-text 404 page, which a kube-apiserver sends for paths without a handler."""
    return text("404 page not found\n", 404)


def status_answer(status: Status) -> Answer:
    """Return a response with a Status as its body, and with a Retry-After header if the details of the Status name a delay."""
    answer = Answer(status.code or 500, object=status_object(status))
    if status.details and status.details.retry_after_seconds:
        answer.headers.append(("Retry-After", str(status.details.retry_after_seconds)))
    return answer


def status_object(status: Status) -> JSONObject:
    """Return a Status as a JSON tree. An empty message, empty reason or empty details are left out, as by Go's omitempty."""
    tree: JSONObject = msgspec.to_builtins(status)
    for name in ("message", "reason", "details"):
        if not tree.get(name) and not (name == "details" and tree.get(name) == {}):
            tree.pop(name, None)
    if not tree.get("code"):
        tree.pop("code", None)
    return tree


def success(details: StatusDetails | None = None, code: int = 0) -> Answer:
    """Return a response with a Status of success, such as the response to a completed deletion. ``code`` is 201 for a Binding."""
    return Answer(code or 200, object=status_object(Status(status="Success", details=details, code=code)))


# Encoding of a response's object: media type, indentation and compression follow the request.
#
# Source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters, pkg/endpoints/handlers/negotiation.


_LOG = logging.getLogger("kubeloop.endpoints")

#: Minimum bytes of a body that is compressed for clients that accept it, as upstream.
GZIP_FROM = 128 * 1024
_OF_GZIP = (("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding"))

#: The texts that Go's strconv.ParseBool parses as true.
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
#: Prefixes of the user agents of browsers and similar programs, which get indented JSON.
_HUMAN = ("curl", "Wget", "Mozilla/5.0")


def finish(request: Request, answer: Answer) -> None:
    """Encode the body of a response, in place.

    JSON ends with a newline unless it is indented, as in upstream's two ways of writing JSON.
    A client that accepts no media type of the server gets indented JSON.
    """
    if answer.verbatim:
        return
    accept = request.header("Accept")
    indented = _wants_indented(request)
    if answer.object is not None:
        media_type = answer.content_type or media_type_for_errors(accept)
        indented |= not media_type
        answer.body, answer.content_type = _encoded(answer.object, media_type, accept)
    if answer.body and answer.content_type.startswith(JSON):
        answer.body = msgspec.json.format(answer.body, indent=2) if indented else answer.body + b"\n"
    if answer.body and len(answer.body) >= GZIP_FROM and _accepts_gzip(request):
        answer.body = gzipped(answer.body)
        answer.headers += _OF_GZIP


def compress_list(request: Request, reply: StreamingResponse) -> None:
    """Compress a list of at least ``GZIP_FROM`` bytes that is written as a stream, in place, if the client accepts gzip."""
    if _accepts_gzip(request):
        reply.chunks = _gzipped_chunks(reply.chunks)
        reply.headers = [*reply.headers, *_OF_GZIP]


def gzipped(body: bytes) -> bytes:
    """Compress a body with gzip at the fastest level, as upstream does."""
    packer = _packer()
    return packer.compress(body) + packer.flush()


async def _gzipped_chunks(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    packer = _packer()
    async for chunk in chunks:
        if packed := packer.compress(chunk):
            yield packed
    yield packer.flush()


def _packer() -> zlib._Compress:
    return zlib.compressobj(1, zlib.DEFLATED, 31)


def _encoded(tree: JSONObject, media_type: str, accept: str) -> tuple[bytes, str]:
    """Encode an object as the media type. An object without a protobuf form is sent as JSON if the client also accepts JSON."""
    if media_type == YAML:
        from kubeloop.endpoints.yaml_body import dump_yaml

        return dump_yaml(tree), YAML
    if media_type == PROTOBUF:
        from kubeloop.codec import protobuf

        try:
            return protobuf.encode(tree), PROTOBUF
        except (protobuf.EncodeError, UnknownKind) as fault:
            if not accepts_json(accept):
                status = status_object(api_errors.not_acceptable((JSON, YAML)).status)
                _LOG.warning("an answer has no protobuf form: %s", fault)
                return protobuf.encode(status), PROTOBUF
    return encode(tree), media_type if media_type.startswith(JSON) else JSON


def _wants_indented(request: Request) -> bool:
    if asks_for_indented(request.header("Accept")):
        return True
    asked = request.parameter("pretty")
    return asked in _TRUE if asked else request.header("User-Agent").startswith(_HUMAN)


def _accepts_gzip(request: Request) -> bool:
    """Return whether the client accepts gzip. As upstream, only the plain word ``gzip`` counts, not one with a quality value."""
    header = request.header("Accept-Encoding")
    return "gzip" in header and any(part.strip() == "gzip" for part in header.split(","))
