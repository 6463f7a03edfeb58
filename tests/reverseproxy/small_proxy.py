"""A small API proxy made of the layers below ``kubeloop.apiserver``; ``test_without_server.py`` runs it in a separate process.

Usage: python small_proxy.py KUBECONFIG. It prints its URL, proxies requests to the API server as the user of the kubeconfig, and when its
input ends it prints the modules of kubeloop that it has loaded.

It does four things that an API proxy does: it forbids deletions of pods, answers nodes itself (as objects and Tables), counts the events
of watches, which ``/counts`` shows, and proxies everything else, upgrades included.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from urllib.parse import quote, urlsplit

from kubeloop.config import RequestAuthenticator, load_config
from kubeloop.endpoints.access import ANONYMOUS, access_of, forbidden
from kubeloop.endpoints.negotiation import negotiate
from kubeloop.endpoints.request_info import RequestInfo, request_info
from kubeloop.endpoints.responses import finish, status_answer
from kubeloop.endpoints.tables import table
from kubeloop.meta.errors import ApiError
from kubeloop.reverseproxy.backend import PATH_SAFE, Backend
from kubeloop.reverseproxy.http import proxy_request
from kubeloop.reverseproxy.upgrade import is_upgrade, proxy_upgrade
from kubeloop.serving.answer import Answer, Reply, StreamingResponse
from kubeloop.serving.listener import Listener
from kubeloop.serving.request import Request
from kubeloop.timing import SystemClock
from kubeloop.types import JSONObject

NODE: JSONObject = {
    "kind": "Node",
    "apiVersion": "v1",
    "metadata": {"name": "of-the-proxy", "labels": {"node-role.kubernetes.io/edge": ""}},
    "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1.36.0"}},
}


class SmallProxy:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._counts: Counter[str] = Counter()

    async def handle(self, request: Request) -> Reply:
        try:
            reply = await self._reply(request, request_info(request))
        except ApiError as error:
            reply = status_answer(error.status)
        if isinstance(reply, Answer):
            finish(request, reply)
        return reply

    async def _reply(self, request: Request, info: RequestInfo) -> Reply:
        if request.path == "/counts":
            return Answer(object=dict(self._counts))
        if (info.verb, info.resource, info.subresource) == ("delete", "pods", ""):
            raise forbidden(access_of(ANONYMOUS, info), "this proxy deletes no pods")
        if (info.verb, info.resource) == ("list", "nodes"):
            return self._nodes(request, info)
        path = quote(request.path, safe=PATH_SAFE, errors="surrogateescape")
        backend = replace(self._backend, path=path, query=request.query_string)
        if is_upgrade(request):
            self._counts["upgrades"] += 1
            return await proxy_upgrade(request, backend, self._rewrite)
        reply = await proxy_request(request, backend, self._rewrite, same_paths=True)
        if info.verb == "watch" and isinstance(reply, StreamingResponse):
            reply.chunks = self._counted(reply.chunks)
        return reply

    def _rewrite(self, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return [(name, self._backend.authority if name == "Host" else value) for name, value in headers]

    def _nodes(self, request: Request, info: RequestInfo) -> Answer:
        accepted = negotiate(request.header("Accept"), info.verb)
        if accepted.form == "Table":
            return Answer(object=table(info.group_resource, [NODE], {"resourceVersion": "1"}, now=time.time()))
        return Answer(object={"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [NODE]})

    async def _counted(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for chunk in chunks:
                self._counts["events"] += chunk.count(b"\n")
                yield chunk
        finally:
            await chunks.aclose()  # type: ignore[attr-defined]  # it is a generator


async def _backend(kubeconfig: str) -> Backend:
    config = load_config(kubeconfig)
    url = urlsplit(config.server)
    tls: ssl.SSLContext = config.ssl_context(await RequestAuthenticator(config, SystemClock()).client_certificate())
    assert url.hostname is not None
    return Backend(url.hostname, url.port or 443, tls)


async def main() -> None:
    proxy = SmallProxy(await _backend(sys.argv[1]))
    listener = Listener(proxy.handle, None)
    await listener.bind()
    await listener.serve()
    print(listener.url, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await listener.close()
    print("\n".join(name for name in sys.modules if name.startswith("kubeloop")), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
