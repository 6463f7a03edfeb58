"""A proxy that rewrites single pods."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from examples.api_proxy_tutorial.stage1_pass_through.proxy import PassThrough
from examples.api_proxy_tutorial.stage2_get.rewrite import rewrite
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.http1.headers import Headers
from kubeloop.serving.answer import Answer, Reply, StreamingResponse
from kubeloop.serving.request import Request
from kubeloop.types import JSONObject


class GetProxy(PassThrough):
    """Rewrites the pods that clients get by name."""

    async def reply(self, request: Request, info: RequestInfo) -> Reply:
        if (info.group, info.resource, info.subresource) != ("", "pods", ""):
            return await self.forward(request)
        return await self.pods(request, info)

    async def pods(self, request: Request, info: RequestInfo) -> Reply:
        """Answer a request for pods."""
        if info.verb != "get" or "as=Table" in request.header("Accept"):
            return await self.forward(request)
        status, document = await self.fetch(request)
        seen = rewrite(document) if status == 200 else document
        if seen is None:
            raise api_errors.not_found(info.group_resource, info.name)
        return Answer(status, object=seen)

    async def fetch(self, request: Request) -> tuple[int, JSONObject]:
        """Return the status and the JSON document of the API server's response."""
        return await self.document_of(await self.open(request))

    async def document_of(self, reply: StreamingResponse) -> tuple[int, JSONObject]:
        body = b"".join([chunk async for chunk in reply.chunks])
        return reply.status, msgspec.json.decode(body)

    async def open(self, request: Request, accept: str = "application/json") -> StreamingResponse:
        """Forward a request, so that the response is JSON: not protobuf, which typed Go clients prefer, and not compressed."""
        headers = Headers()
        headers.add("Accept", accept)
        for name, value in request.headers.items():
            if name.lower() not in ("accept", "accept-encoding"):
                headers.add(name, value)
        reply = await self.forward(replace(request, headers=headers))
        assert isinstance(reply, StreamingResponse)
        return reply
