"""A proxy that passes everything. Parsing, streaming and tunnels are in the layers of kubeloop."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

from kubeloop.endpoints.request_info import RequestInfo, request_info
from kubeloop.endpoints.responses import finish, status_answer
from kubeloop.meta.errors import ApiError
from kubeloop.reverseproxy.backend import PATH_SAFE, Backend
from kubeloop.reverseproxy.http import proxy_request
from kubeloop.reverseproxy.upgrade import is_upgrade, proxy_upgrade
from kubeloop.serving.answer import Answer, Reply
from kubeloop.serving.request import Request

Headers = list[tuple[str, str]]


class PassThrough:
    """Forwards each request to an API server, and prints it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    async def handle(self, request: Request) -> Reply:
        print(request.method, f"{request.path}?{request.query_string}".rstrip("?"), flush=True)
        try:
            reply = await self.reply(request, request_info(request))
        except ApiError as error:
            reply = status_answer(error.status)
        if isinstance(reply, Answer):
            finish(request, reply)
        return reply

    async def reply(self, request: Request, info: RequestInfo) -> Reply:
        del info
        return await self.forward(request)

    async def forward(self, request: Request) -> Reply:
        path = quote(request.path, safe=PATH_SAFE, errors="surrogateescape")
        backend = replace(self.backend, path=path, query=request.query_string)
        if is_upgrade(request):
            return await proxy_upgrade(request, backend, self.headers)
        return await proxy_request(request, backend, self.headers, same_paths=True)

    def headers(self, headers: Headers) -> Headers:
        return [(name, self.backend.authority if name == "Host" else value) for name, value in headers]
