"""Requests about hidden objects: the API server gets the same request about an object that does not exist, and its answer is passed on.

So the answer is that for a missing object in everything: permissions, faults of the request, headers, and the time that it takes.
"""

from __future__ import annotations

import dataclasses
import secrets
import string
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
from multidict import CIMultiDict

from kubeloop.codec import protobuf
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.responses import status_object
from kubeloop.proxy.scope import ProxiedRequest
from kubeloop.proxy.write_mapping import decoded_body
from kubeloop.serving.answer import Answer, Reply, StreamingResponse

#: Begin of the names of objects that do not exist, for readers of the API server's audit log.
_PREFIX: Final = "kubeloop-hidden-"
_OF_BODY: Final = ("content-length", "content-type")
#: Maximum bytes of an answer.
_ANSWER: Final = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class StandIn:
    """A request about an object that does not exist, in place of one about a hidden object.

    Attributes:
        scope: The request.
        body: Its body.
    """

    scope: ProxiedRequest
    body: bytes
    _name: str
    _substitute: str

    @classmethod
    def of(cls, scope: ProxiedRequest, body: bytes) -> StandIn:
        """Return the request that is sent in place of another one. A request that could create an object is a dry run."""
        request, info = scope.request, scope.info
        substitute = _PREFIX + secrets.token_hex(8)
        if request.method == "HEAD":
            # The length of a body that is not sent must not differ. No object has capitals in its name, apart from some of RBAC.
            substitute = "".join(secrets.choice(string.ascii_uppercase) for _ in info.name)
        query = request.query_string
        if request.method in ("PUT", "PATCH") and "dryRun" not in request.query:
            query = f"{query}&dryRun=All" if query else "dryRun=All"
        headers = request.headers
        renamed = _renamed(body, request.header("Content-Type"), info.name, substitute) if body else None
        if renamed is not None:
            body = renamed
            if request.header("Content-Type").startswith(protobuf.MEDIA_TYPE):
                headers = CIMultiDict((name, value) for name, value in headers.items() if name.lower() != "content-type")
                headers["Content-Type"] = "application/json"

        async def read_body(limit: int) -> bytes:
            del limit  # the body has been read already
            return body

        replaced = dataclasses.replace(
            request,
            path=_path(scope, substitute),
            query_string=query,
            headers=headers,
            read_body=read_body,
            body=None,
        )
        other = dataclasses.replace(scope, request=replaced, info=msgspec.structs.replace(info, name=substitute))
        return cls(other, body, info.name, substitute)

    async def disguised(self, reply: Reply) -> Answer | StreamingResponse:
        """Return the answer for the client: it is about the name that the client sent."""
        if self.scope.request.method == "HEAD" and isinstance(reply, StreamingResponse) and reply.status >= 400:
            return reply
        if isinstance(reply, StreamingResponse) and reply.status >= 400:
            reply = Answer(reply.status, body=await _collected(reply.chunks), content_type="", headers=reply.headers, verbatim=True)
        if not isinstance(reply, Answer) or reply.status < 400:
            return self._taken(reply)
        if reply.object is not None:
            reply.object = msgspec.json.decode(self._named(msgspec.json.encode(reply.object)))
        if reply.body is not None:
            reply.body = self._named(reply.body)
        reply.headers = [(name, value.replace(self._substitute, self._name)) for name, value in reply.headers]
        return reply

    def _named(self, data: bytes) -> bytes:
        return data.replace(self._substitute.encode(), self._name.encode())

    def _taken(self, reply: Reply) -> Answer:
        """Return the answer if a missing object would have been created, or the request needs none: the name is taken."""
        close: Any = getattr(reply, "close", None)
        if close is not None:
            close()
        resource = self.scope.info.group_resource
        creates = self.scope.request.method in ("PUT", "PATCH")
        error = api_errors.already_exists(resource, self._name) if creates else api_errors.not_found(resource, self._name)
        headers = [pair for pair in reply.headers if pair[0].lower() not in _OF_BODY] if isinstance(reply, Answer) else []
        return Answer(error.status.code, object=status_object(error.status), headers=headers)


async def _collected(chunks: AsyncIterator[bytes]) -> bytes:
    parts, size = [], 0
    async for part in chunks:
        parts.append(part)
        size += len(part)
        if size > _ANSWER:
            break
    return b"".join(parts)


def _path(scope: ProxiedRequest, substitute: str) -> str:
    info = scope.info
    parts = scope.request.path.split("/")
    at = 3 if parts[1] == "api" else 4
    if info.namespace and info.resource != "namespaces":
        at += 2
    # The name in a path of a proxy has a scheme and a port around it.
    words = parts[at + 1].split(":")
    parts[at + 1] = ":".join(substitute if word == info.name else word for word in words)
    return "/".join(parts)


def _renamed(body: bytes, content_type: str, name: str, substitute: str) -> bytes | None:
    """Return the body with another name of the object; None if it does not name the object."""
    tree = decoded_body(body, content_type)
    metadata = tree.get("metadata") if tree is not None else None
    if tree is None or not isinstance(metadata, dict) or metadata.get("name") != name:
        return None
    return msgspec.json.encode(tree | {"metadata": metadata | {"name": substitute}})
