"""The handler of /openapi/v3 (an index, and a document for each group version) and /openapi/v2, in JSON and gnostic's protobuf.

Clients may cache a document forever, because the index contains its hash. Every HTTP method returns a document, which is never indented.
Source: kube-openapi handler and handler3.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Final

import msgspec

from kubeloop.apiserver.aggregation.api_services import ApiServiceTable
from kubeloop.apiserver.openapi.documents import OpenAPIDocuments
from kubeloop.apiserver.openapi.gnostic import V2_CONTENT_TYPE, V2_MEDIA_TYPE, V3_CONTENT_TYPE, V3_MEDIA_TYPE, encode_v2
from kubeloop.apiserver.openapi.swagger import merge_documents, swagger
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.endpoints.responses import gzipped
from kubeloop.schema.descriptions import Descriptions
from kubeloop.serving.answer import Answer
from kubeloop.serving.negotiation import parse_accept
from kubeloop.serving.request import Request
from kubeloop.timing import Clock

_LOG = logging.getLogger("kubeloop.apiserver.openapi")

_JSON: Final = "application/json"
#: Media type in an Accept header -> Content-Type of the response. Every wildcard means JSON.
_V2_TYPES: Final = {
    **dict.fromkeys((_JSON, "application/*", "*/*"), _JSON),
    **dict.fromkeys((V2_MEDIA_TYPE, V2_CONTENT_TYPE), V2_CONTENT_TYPE),
}
_V3_TYPES: Final = {
    **dict.fromkeys((_JSON, "application/*", "*/*"), _JSON),
    **dict.fromkeys((V3_MEDIA_TYPE, V3_CONTENT_TYPE), V3_CONTENT_TYPE),
}
_VARY: Final = ("Vary", "Accept")


@dataclass(slots=True)
class _EncodedDocument:
    """An encoded OpenAPI v2 document. ``packed`` is its gzip form, created when it is first needed."""

    revision: tuple[int, int]
    body: bytes
    made: datetime
    packed: bytes = b""


class OpenAPIHandler:
    """Creates the responses to requests for OpenAPI documents; ``OpenAPI`` creates this handler with the first request."""

    def __init__(self, registry: Registry, clock: Clock, table: ApiServiceTable, descriptions: Descriptions) -> None:
        """Create the handler.

        Args:
            registry: The served resources.
            clock: The clock for Last-Modified and Expires.
            table: APIServices and the documents of their servers.
            descriptions: Texts of built-in kinds.
        """
        self._registry = registry
        self._table = table
        self._clock = clock
        self._descriptions = descriptions
        self._documents = OpenAPIDocuments(registry, clock, descriptions)
        self._v2: dict[str, _EncodedDocument] = {}

    def answer(self, request: Request) -> Answer | None:
        """Return the response, or None if the path is not an OpenAPI document."""
        path = request.path
        if path == "/openapi/v2":
            return self._swagger(request)
        if path == "/openapi/v3":
            return self._index()
        if path.startswith("/openapi/v3/"):
            return self._document(request, path.removeprefix("/openapi/v3/"))
        return None

    def _index(self) -> Answer:
        hashes = self._documents.hashes()
        paths = {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"} for name, digest in hashes.items()}
        others = {
            one.path.removeprefix("/"): self._table.openapi[one.name] for one in self._table.remote() if one.name in self._table.openapi
        }
        if others:
            paths = dict(sorted({**paths, **others}.items()))
        return Answer(body=msgspec.json.encode({"paths": paths}), content_type="text/plain; charset=utf-8", verbatim=True)

    def _document(self, request: Request, name: str) -> Answer:
        digest = self._documents.hashes().get(name)
        if digest is None:
            return Answer(404, body=b"", verbatim=True)
        accept = request.header("accept")
        if accept and not parse_accept(accept):
            return Answer(body=b"", verbatim=True)  # Upstream examines each clause of the header, and there is none here.
        kind = _preferred(accept, _V3_TYPES)
        if kind is None:
            return Answer(406, body=b"", headers=[_VARY], verbatim=True)
        headers = [_VARY]
        requested = request.parameter("hash")
        if requested and requested != digest:
            # The document has changed since the client read the index.
            headers += [("Location", f"/openapi/v3/{name}?hash={digest}"), ("ETag", f'"{digest}"')]
            return Answer(301, body=b"", content_type=kind, headers=headers, verbatim=True)
        if requested:
            expires = format_datetime(self._clock.wall() + timedelta(days=365), usegmt=True)
            headers += [("Cache-Control", "public, immutable"), ("Expires", expires)]
        body = self._documents.body(name, protobuf=kind != _JSON)
        return _tagged(request, body, digest, self._documents.changed, headers, kind)

    def _swagger(self, request: Request) -> Answer:
        kind = _preferred(request.header("accept"), _V2_TYPES)
        if kind is None:
            return Answer(406, body=b"", headers=[_VARY], verbatim=True)
        retained = self._kept(kind)
        headers = [("Vary", "Accept-Encoding"), _VARY]
        answer = _tagged(request, retained.body, hashlib.sha512(retained.body).hexdigest().upper(), retained.made, headers, kind)
        if answer.body and _takes_gzip(request.header("accept-encoding")):
            retained.packed = retained.packed or gzipped(retained.body)
            answer.body = retained.packed
            answer.headers.append(("Content-Encoding", "gzip"))
        return answer

    def _kept(self, kind: str) -> _EncodedDocument:
        retained = self._v2.get(kind)
        revision = (self._registry.revision, self._table.revision)
        if retained is None or retained.revision != revision:
            body = self._encoded(kind)
            same = retained is not None and retained.body == body
            made = retained.made if retained is not None and same else self._clock.wall()
            retained = self._v2[kind] = _EncodedDocument(revision, body, made, retained.packed if retained is not None and same else b"")
        return retained

    def _encoded(self, kind: str) -> bytes:
        encode = msgspec.json.encode if kind == _JSON else encode_v2
        own = swagger(self._registry, self._descriptions)
        if not self._table.swagger:
            return encode(own)
        try:
            return encode(merge_documents(own, self._table))
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
            _LOG.exception("OpenAPI v2 of other servers cannot be encoded as %s; omitted", kind)
            return encode(own)


def _preferred(header: str, offered: dict[str, str]) -> str | None:
    """Return the Content-Type for the first clause of the Accept header that the server can satisfy, or None if there is none."""
    if not header:
        return _JSON
    return next((offered[clause.media_type] for clause in parse_accept(header) if clause.media_type in offered), None)


def _takes_gzip(header: str) -> bool:
    """Return whether a client accepts gzip, by the rules of upstream's gzip handler: quality values count, upper and lower case do not."""
    for part in header.split(","):
        coding, _, rest = part.partition(";")
        name, _, quality = rest.partition("=")
        if coding.strip().lower() == "gzip":
            try:
                return name.strip() != "q" or float(quality) > 0
            except ValueError:
                return False
    return False


def _tagged(request: Request, body: bytes, digest: str, changed: datetime, headers: list[tuple[str, str]], kind: str) -> Answer:
    """Return the response with ETag and caching headers, or 304 if the client already has the current document.

    Args:
        request: The request with its If-None-Match.
        body: The document.
        digest: Hash of the document, for the ETag.
        changed: Time for Last-Modified.
        headers: Further headers.
        kind: The Content-Type.
    """
    tag = f'"{digest}"'
    headers += [("Accept-Ranges", "bytes"), ("ETag", tag), ("Last-Modified", format_datetime(changed, usegmt=True))]
    if tag in [one.strip().removeprefix("W/") for one in request.header("if-none-match").split(",")]:
        return Answer(304, body=b"", content_type=kind, headers=headers, verbatim=True)
    return Answer(body=body, content_type=kind, headers=headers, verbatim=True)
