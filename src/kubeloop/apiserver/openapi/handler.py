"""Answers at /openapi/v3 (an index, and a document for each group version) and /openapi/v2.

The hash in an index entry lets clients keep a document for ever. The protobuf form of v3 is answered with 406: clients fall back to JSON.
Source: kube-openapi handler and handler3.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from email.utils import format_datetime
from typing import Final

import msgspec

from kubeloop.apiserver import refusals
from kubeloop.apiserver.openapi import gnostic
from kubeloop.apiserver.openapi.documents import Documents
from kubeloop.apiserver.openapi.swagger import swagger
from kubeloop.apiserver.registry import Registry
from kubeloop.serving.answer import Answer
from kubeloop.serving.negotiation import parse_accept
from kubeloop.serving.request import Request
from kubeloop.timing import Clock

_JSON: Final = "application/json"
_TYPES: Final = (_JSON, "application/*", "*/*")


class OpenAPI:
    """``/openapi/v2`` and ``/openapi/v3``; always as the registry is now."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._clock = clock
        self._documents = Documents(registry)
        self._v2: dict[str, tuple[int, bytes]] = {}

    def answer(self, request: Request) -> Answer | None:
        """None when the path is no OpenAPI document.

        Raises:
            MethodNotAllowed
        """
        path = request.path.rstrip("/")
        if path != "/openapi/v2" and path != "/openapi/v3" and not path.startswith("/openapi/v3/"):
            return None
        if request.method not in ("GET", "HEAD"):
            raise refusals.method_not_allowed()
        if path == "/openapi/v3":
            return self._index()
        vary = ("Vary", "Accept")
        offered = (*_TYPES, gnostic.MEDIA_TYPE) if path == "/openapi/v2" else _TYPES
        wanted = _preferred(request.header("accept"), offered)
        if wanted is None:
            return Answer(406, body=b"", content_type=_JSON, headers=[vary])
        if path == "/openapi/v2":
            body = self._swagger(wanted)
            kind = gnostic.ANSWERED_TYPE if wanted == gnostic.MEDIA_TYPE else _JSON
            return _tagged(request, body, hashlib.sha512(body).hexdigest().upper(), [vary], kind)
        return self._document(request, path.removeprefix("/openapi/v3/"))

    def _index(self) -> Answer:
        hashes = self._documents.hashes()
        paths = {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"} for name, digest in hashes.items()}
        return Answer(body=msgspec.json.encode({"paths": paths}), content_type="text/plain; charset=utf-8")

    def _document(self, request: Request, name: str) -> Answer:
        digest = self._documents.hashes().get(name)
        if digest is None:
            return Answer(404, body=b"")
        headers = [("Vary", "Accept")]
        asked = request.parameter("hash")
        if asked and asked != digest:
            # The document has changed since the index was read.
            headers += [("Location", f"/openapi/v3/{name}?hash={digest}"), ("ETag", f'"{digest}"')]
            return Answer(301, body=b"", content_type=_JSON, headers=headers)
        if asked:
            expires = format_datetime(self._clock.wall() + timedelta(days=365), usegmt=True)
            headers += [("Cache-Control", "public, immutable"), ("Expires", expires)]
        return _tagged(request, self._documents.body(name), digest, headers)

    def _swagger(self, wanted: str) -> bytes:
        revision, body = self._v2.get(wanted, (-1, b""))
        if revision != self._registry.revision:
            revision = self._registry.revision
            document = swagger(self._registry)
            body = gnostic.encode(document) if wanted == gnostic.MEDIA_TYPE else msgspec.json.encode(document)
            self._v2[wanted] = revision, body
        return body


def _preferred(header: str, offered: tuple[str, ...]) -> str | None:
    """The first clause that is offered; every wildcard means JSON."""
    clauses = parse_accept(header)
    if not clauses:
        return _JSON
    found = next((clause.media_type for clause in clauses if clause.media_type in offered), None)
    return _JSON if found in _TYPES else found


def _tagged(request: Request, body: bytes, digest: str, headers: list[tuple[str, str]], kind: str = _JSON) -> Answer:
    tag = f'"{digest}"'
    headers.append(("ETag", tag))
    if tag in [one.strip().removeprefix("W/") for one in request.header("if-none-match").split(",")]:
        return Answer(304, body=b"", content_type=_JSON, headers=headers)
    return Answer(body=body, content_type=kind, headers=headers)
