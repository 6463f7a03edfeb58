"""Requests, views and a scripted API server for the tests of the proxy's core, without sockets."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import msgspec

from kubeloop.endpoints.access import User
from kubeloop.http1.headers import Headers
from kubeloop.meta.errors import TransportError
from kubeloop.proxy.continuity import Continuity
from kubeloop.proxy.identity import ClientIdentity, Identity
from kubeloop.proxy.open_watches import UpstreamWatches
from kubeloop.proxy.pipeline import ProxyPipeline, RulesInForce, concerns
from kubeloop.proxy.reads import ReadServices
from kubeloop.proxy.rules import RuleSet
from kubeloop.proxy.tables import PrinterColumns
from kubeloop.proxy.upstream import Upstream
from kubeloop.proxy.view import ClientView, RuleCounters
from kubeloop.serving.answer import Answer, Hijack, Reply, SocketTakeover
from kubeloop.serving.request import Request
from kubeloop.timing import Clock, FakeClock
from kubeloop.transport.connection import PooledAnswer
from kubeloop.transport.round_tripper import OutgoingRequest
from kubeloop.types import JSONObject
from tests.proxy.rules.rule_texts import rules_of, selection_of

PODS = "/api/v1/namespaces/shop/pods"
JSON_TYPE = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def headers_of(lines: Iterable[tuple[str, str]]) -> Headers:
    headers = Headers()
    for name, value in lines:
        headers.add(name, value)
    return headers


def request_for(target: str = PODS, method: str = "GET", body: Any = None, **headers: str) -> Request:
    """Return a request.

    Args:
        target: Path and query.
        method: The method.
        body: A body, which is sent as JSON unless it is bytes.
        headers: Headers, with underscores for hyphens.
    """
    path, _, query = target.partition("?")
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()

    async def read_body(limit: int) -> bytes:
        assert len(data) <= limit
        return data

    lines = [(name.replace("_", "-"), value) for name, value in headers.items()]
    if data:
        lines += [("Content-Length", str(len(data)))] + ([] if "Content_Type" in headers else [("Content-Type", JSON_TYPE)])
    return Request(method, path, query, headers_of(lines), read_body, remote="192.0.2.7")


def view_of(*rules: JSONObject, query: str = "", clock: Clock | None = None, dry_run: bool = False, **parts: Any) -> ClientView:
    """Return what a client sees that lists the pods of namespace shop.

    Args:
        rules: Documents of rules.
        query: The query of the request.
        clock: For Python callables.
        dry_run: Show everything unchanged.
        parts: Fields of the request that rules see.
    """
    selection = selection_of(*rules, clock=clock, **{"verb": "list", "name": "", **parts})
    return ClientView(selection, request_for(f"{PODS}?{query}"), RuleCounters(), dry_run=dry_run)


def pod(name: str = "web-0", tier: str = "front", *, version: str = "7", node: str = "node-7", **metadata: Any) -> JSONObject:
    """Return a pod of namespace shop as a server sends it in an event.

    Args:
        name: The name.
        tier: Value of the label ``tier``.
        version: The resourceVersion.
        node: The node's name.
        metadata: Further fields of the metadata.
    """
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-of-{name}",
            "resourceVersion": version,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"tier": tier},
            **metadata,
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "nginx"}]},
        "status": {"phase": "Running"},
    }


def list_of(*items: JSONObject, version: str = "9", kind: str = "PodList", api_version: str = "v1", **metadata: Any) -> bytes:
    """Return the body of a list of a built-in kind: its head first, its items without kind.

    Args:
        items: The objects.
        version: The resourceVersion of the list.
        kind: Kind of the list.
        api_version: API version of the list.
        metadata: Further metadata of the list.
    """
    bare = [{name: value for name, value in item.items() if name not in ("kind", "apiVersion")} for item in items]
    return msgspec.json.encode(
        {"kind": kind, "apiVersion": api_version, "metadata": {"resourceVersion": version, **metadata}, "items": bare}
    )


def frame(type_: str, tree: JSONObject) -> bytes:
    """Return an event as a server sends it, with its newline."""
    return msgspec.json.encode({"type": type_, "object": tree}) + b"\n"


class ScriptedAnswer:
    """A response of the scripted API server. ``chunks`` yields bytes; an exception among them is raised."""

    def __init__(self, status: int = 200, chunks: Iterable[bytes | Exception] = (), content_type: str = JSON_TYPE, **headers: str) -> None:
        self.status = status
        self.headers = headers_of([("Content-Type", content_type), *headers.items()])
        self._chunks = iter(chunks)
        self.closed = False

    async def chunk(self, read_timeout: float | None = None) -> bytes:
        del read_timeout
        if self.closed:
            raise TransportError("this answer was left before its end")
        item = next(self._chunks, b"")
        if isinstance(item, Exception):
            raise item
        return item

    async def pass_on(self, take: Callable[[bytes], bool], ready: Callable[[], Awaitable[None]]) -> None:
        while part := await self.chunk():
            while not take(part):
                await ready()

    async def read(self, limit: int) -> bytes:
        parts = []
        while part := await self.chunk():
            parts.append(part)
        body = b"".join(parts)
        assert len(body) <= limit
        return body

    def close(self) -> None:
        self.closed = True


def pooled(answer: Any) -> PooledAnswer:
    """Return an answer of a script, typed as the proxy reads it."""
    return cast("PooledAnswer", answer)


Script = Callable[[OutgoingRequest], Any]


class ScriptedUpstream(Upstream):
    """An API server that is a function of the request; ``requests`` holds the requests that it got."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[OutgoingRequest] = []
        self.answers: list[Any] = []

    async def send(self, request: OutgoingRequest, *, as_proxy: bool) -> PooledAnswer:
        del as_proxy
        self.requests.append(request)
        answer = self._script(request)
        if isinstance(answer, Awaitable):
            answer = await answer
        self.answers.append(answer)
        return pooled(answer)

    @property
    def targets(self) -> list[str]:
        return [f"{request.method} {request.target}" for request in self.requests]


class _OneUser(Identity):
    """Every request is one user's."""

    def __init__(self, upstream: Upstream, clock: Clock, user: User) -> None:
        super().__init__(upstream, clock)
        self._user = user

    async def identify(self, request: Request) -> ClientIdentity:
        del request
        return ClientIdentity(self._user, (("Impersonate-User", self._user.name),), as_proxy=True)


class ScriptedProxy:
    """The pipeline of a proxy in front of a scripted API server.

    Args:
        script: The API server: a function of the request.
        rules: Documents of rules.
        user: The user of all requests.
        dry_run: See ``ProxyOptions``.
        explain: See ``ProxyOptions``.
    """

    def __init__(self, script: Script, *rules: JSONObject, user: User | None = None, dry_run: bool = False, explain: bool = False) -> None:
        self.clock = FakeClock()
        self.upstream = ScriptedUpstream(script)
        self.in_force = RulesInForce(rules_of(*rules, clock=self.clock) if rules else RuleSet((), ""), fixed=False)
        self.services = ReadServices(
            self.upstream,
            Continuity(),
            UpstreamWatches(),
            PrinterColumns(self.upstream, self.clock),
            RuleCounters(),
            self.clock,
            dry_run,
            explain,
        )
        identity = _OneUser(self.upstream, self.clock, user or User("ann", ("devs",)))
        self.pipeline = ProxyPipeline(identity, self.services, self.in_force)

    async def __call__(self, target: str = PODS, method: str = "GET", body: Any = None, **headers: str) -> Reply:
        return await self.pipeline.handle(request_for(target, method, body, **headers))

    def reload(self, *rules: JSONObject) -> None:
        """Replace the rules, as ``ProxyServer.reload`` does."""
        before, after = self.in_force.rules, rules_of(*rules, clock=self.clock) if rules else RuleSet((), "")
        self.in_force.earlier.append(before)
        self.in_force.rules = after
        self.services.continuity.advance()
        self.services.watches.expire(lambda *resource: concerns(before, *resource) or concerns(after, *resource))


async def body_of(reply: Reply) -> bytes:
    """Return the whole body of a reply.

    Raises:
        Aborted: The body stays incomplete.
    """
    assert not isinstance(reply, Hijack | SocketTakeover)
    if isinstance(reply, Answer):
        return reply.body or b""
    try:
        return b"".join([chunk async for chunk in reply.chunks])
    finally:
        reply.close()


async def json_of(reply: Reply) -> Any:
    return json.loads(await body_of(reply))


async def events_of(reply: Reply) -> list[JSONObject]:
    return [json.loads(line) for line in (await body_of(reply)).splitlines()]
