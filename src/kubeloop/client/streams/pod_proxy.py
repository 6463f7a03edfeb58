"""HTTP requests to pods and services through the API server, for programs without direct access to them.

Source: https://kubernetes.io/docs/tasks/access-application-cluster/access-cluster-services/ (manually constructing proxy URLs).
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from kubeloop.client.mapper import segment
from kubeloop.client.streams.errors import OutputTooLarge, StreamError
from kubeloop.client.streams.targets import Target, named
from kubeloop.client.verbs.base import described_target, limit
from kubeloop.meta.resource import Resource
from kubeloop.transport import Query, Response, Stream

if TYPE_CHECKING:
    from kubeloop.client.client import Client

T = TypeVar("T")

#: Maximum bytes of a response that is awaited as a whole.
MAX_BODY = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRequest:
    """A request; see ``PodVerbs.proxy``."""

    target: Target
    path: str
    method: str = "GET"
    port: int | str | None = None
    https: bool = False
    query: Query | None = None
    body: bytes | None = None
    content_type: str = "application/octet-stream"
    headers: Mapping[str, str] | None = None
    namespace: str | None = None


class ProxyCall:
    """A request that is not sent yet: ``await`` it for the ``Response``, or use it with ``async with``.

    >>> request = client.pods.proxy("web-0", "/healthz", port=8080)
    >>> await request
    Traceback (most recent call last):
        ...
    NotFound: ...

    ``await``
        Returns the whole ``Response``.
    ``async with``
        Returns the response's head; ``chunks()`` yields its body as it arrives. Leaving the block closes the connection at once.
    """

    def __init__(self, client: Client, request: ProxyRequest, *, timeout: float | None = None) -> None:
        self._client = client
        self._request = request
        self._timeout = timeout
        self._stack = AsyncExitStack()

    def __await__(self) -> Generator[Any, None, Response]:
        return self._limited(self._whole()).__await__()

    async def __aenter__(self) -> Stream:
        return await self._limited(self._open())

    async def _limited(self, work: Awaitable[T]) -> T:
        return await limit(work, self._timeout, self._client.clock, f"proxy {described_target(self._request.target)}")

    async def _open(self) -> Stream:
        request = self._request
        # No retry: it is unknown whether the program in the pod tolerates the same request twice.
        stream = self._client.transport.stream(
            request.method,
            proxy_path(request, self._client.namespace),
            query=request.query,
            body=request.body,
            content_type=request.content_type,
            accept="*/*",
            headers=request.headers,
            retry=False,
        )
        return await self._stack.enter_async_context(stream)

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _whole(self) -> Response:
        parts: list[bytes] = []
        size = 0
        async with self._stack:
            stream = await self._open()
            async for chunk in stream.chunks():
                parts.append(chunk)
                size += len(chunk)
                if size > MAX_BODY:
                    raise OutputTooLarge(
                        f"{self._request.method} {self._request.path} through the API server: the answer is larger than {MAX_BODY} bytes; "
                        "stream it: async with client.pods.proxy(...) as answer"
                    )
            return Response(stream.status, stream.headers, b"".join(parts))


def proxy_path(request: ProxyRequest, default_namespace: str) -> str:
    """Return the path of the proxy subresource.

    Raises:
        ValueError: A name, port or path is invalid, or would lead to another path.
    """
    resource, name, namespace = _of(request.target)
    namespace = namespace or request.namespace or default_namespace
    port = "" if request.port is None else segment(str(request.port) if isinstance(request.port, int) else request.port, "port")
    if ":" in name + port:
        raise ValueError(f'"{name}" with port "{port}": give the port by port=, and https=True for TLS')
    # A scheme is understood only together with a port, though that may be empty.
    reference = f"https:{name}:{port}" if request.https else f"{name}:{port}" if port else name
    parts = request.path.lstrip("/").split("/")
    if any(part in (".", "..") for part in parts):
        raise ValueError(f'"{request.path}": "." and ".." are resolved on the way, so that the request would arrive elsewhere')
    if "?" in request.path or "#" in request.path:
        raise ValueError(f'"{request.path}": give what follows "?" by query=')
    rest = "/".join(quote(part, safe="!$&'()*+,;=:@~") for part in parts)
    return f"/api/v1/namespaces/{segment(namespace, 'namespace')}/{resource}/{segment(reference, 'name')}/proxy/{rest}"


def _of(target: Target) -> tuple[str, str, str]:
    kind, name = (type(target), target.metadata.name) if isinstance(target, Resource) else named(target)
    namespace = target.metadata.namespace if isinstance(target, Resource) else ""
    plural = kind.__kind_info__.plural
    if kind.__kind_info__.gvk.group or plural not in ("pods", "services"):
        raise StreamError(f"{kind.kind}: only pods and services can be reached through the API server; give svc/NAME or a pod's name")
    return plural, name, namespace
