"""A scripted API server with pods, and a proxy in caching mode in front of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kubeloop.config import ClusterConfig
from kubeloop.endpoints.access import User
from kubeloop.meta.errors import ApiError
from kubeloop.proxy.cached import CachedReads
from kubeloop.proxy.cached.resource import CacheableResource
from kubeloop.proxy.upstream import bad_gateway
from kubeloop.transport.round_tripper import OutgoingRequest
from kubeloop.types import JSONObject
from tests.proxy.cached.caches import head_of
from tests.proxy.samples import ScriptedAnswer, ScriptedProxy, list_of, pod

ALL = "/api/v1/pods"
SHOP = "/api/v1/namespaces/shop/pods"
FORWARDED = {"kind": "Forwarded"}


class _Source:
    """A list and watch that fails, or brings the pods of the script."""

    watching = True

    def __init__(self, server: CachedApiServer) -> None:
        self._server = server

    async def run(self, store: Any) -> None:
        if self._server.unlisted is not None:
            store.failed(self._server.unlisted)
        else:
            self._server.lists += 1
            store.replace([head_of(store, tree) for tree in self._server.pods], str(self._server.version))
            self._server.store = store
        await asyncio.Event().wait()


class CachedApiServer:
    """An API server with pods; any other request is answered with ``FORWARDED``."""

    def __init__(self, *pods: JSONObject, version: int = 9) -> None:
        self.pods = pods
        self.version = version
        self.verbs = ["get", "list", "watch"]
        self.allows: Any = lambda attributes, user: True
        self.reviews: list[tuple[str, JSONObject]] = []
        self.review_error: ApiError | None = None
        self.away = False
        self.undiscovered: ApiError | None = None
        self.unlisted: Exception | None = None
        self.lists = 0
        self.store: Any = None

    def __call__(self, request: OutgoingRequest) -> Any:
        if self.away:
            raise bad_gateway("the API server is away")
        path = request.target.partition("?")[0]
        if request.method == "POST":
            return self._review(request)
        if path == "/api/v1":
            if self.undiscovered is not None:
                raise self.undiscovered
            resources = [{"name": "pods", "kind": "Pod", "namespaced": True, "verbs": self.verbs}]
            return ScriptedAnswer(chunks=[json.dumps({"kind": "APIResourceList", "resources": resources}).encode()])
        if request.target.endswith("?limit=1"):
            return ScriptedAnswer(chunks=[list_of(*self.pods[:1], version=str(self.version))])
        return ScriptedAnswer(chunks=[json.dumps(FORWARDED).encode()])

    def _review(self, request: OutgoingRequest) -> ScriptedAnswer:
        assert request.body is not None
        review = json.loads(request.body)
        if review["kind"] == "SelfSubjectReview":
            status = {"userInfo": {"username": "tom", "groups": []}}
            return ScriptedAnswer(201, chunks=[json.dumps({"status": status}).encode()])
        self.reviews.append((review["kind"], review["spec"]))
        if self.review_error is not None:
            raise self.review_error
        allowed = self.allows(review["spec"]["resourceAttributes"], review["spec"].get("user"))
        return ScriptedAnswer(201, chunks=[json.dumps({"status": {"allowed": allowed, "reason": "" if allowed else "no role"}}).encode()])


@asynccontextmanager
async def proxy_of(server: CachedApiServer, *rules: JSONObject, user: User | None = None, **options: Any) -> AsyncIterator[ScriptedProxy]:
    """Provide a proxy in caching mode in front of a scripted API server."""
    proxy = ScriptedProxy(server, *rules, user=user, **options)

    async def resolve(*_: Any) -> User:
        return User("tom")

    def source(served: CacheableResource) -> _Source:
        assert served.list_kind == "PodList"
        return _Source(server)

    cached = CachedReads(ClusterConfig(server="https://192.0.2.1"), proxy.services, resolve, make_source=source)
    proxy.pipeline.cached = cached
    try:
        yield proxy
    finally:
        await cached.close()


def names(tree: JSONObject) -> list[str]:
    return [item["metadata"]["name"] for item in tree["items"]]


A, B = pod("a", version="3"), pod("b", "back", version="4")
