"""``python -m examples.traffic_router.router``: an HTTP Router that splits requests between Services, and forwards them to their pods.

It learns the pods from the API server itself, not through the proxy that names it to others in place of the pods.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import click
from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    ConnectionTimeoutError,
    TCPConnector,
    web,
)
from aiohttp.abc import AbstractAccessLogger
from aiohttp.typedefs import LooseHeaders
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

import kubeloop
from examples.traffic_router.endpoints import Address, ServiceAddresses
from examples.traffic_router.routes import RoutesFile
from kubeloop import Client, InformerFactory

#: Headers of one connection, which are not forwarded (RFC 9110, 7.6.1); 100 (Continue) is each server's own answer (10.1.1).
_HOP_BY_HOP = ("Connection", "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade", "Expect")
_VIA = "1.1 router"
#: Keys of a request: the Service and the pod that got it, and why its response is not that of a pod.
_SERVICE, _POD, _ERROR = (web.RequestKey(name, str) for name in ("service", "pod", "error"))
#: Headers that the client would add to a request that lacks them.
_ADDED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_CONNECTIONS = 512
_logger = logging.getLogger("router")


@dataclass(frozen=True, slots=True)
class ForwardLimits:
    """How long the Router waits.

    Attributes:
        connect: Seconds until a pod accepts a connection.
        silence: Seconds in which neither side sends or takes a byte.
        attempts: Pods to try if a connection is refused.
    """

    connect: float = 2.0
    silence: float = 30.0
    attempts: int = 3


class TrafficRouter:
    """Forwards each request to a pod of the Service that the routes choose; bodies are streamed in both directions.

    Guarantees:
        A request is sent to one pod only. The Router tries another pod only if it could not connect.
        A response that breaks off breaks off at the client too: a part never looks like the whole.

    Not guaranteed:
        Upgrades, such as WebSocket: pods get plain requests.

    Args:
        routes: Host and headers -> Service.
        addresses: Service -> addresses of its pods, in the order in which to try them.
        limits: How long it waits.
        source: Address from which it connects to pods; None: the kernel chooses.

    Example:
        >>> async with TrafficRouter(RoutesFile(Path("routes.yaml")), lambda service: [("10.0.0.7", 8080)]) as router:
        ...     host, port = await router.listen("127.0.0.1", 0)
    """

    def __init__(
        self,
        routes: RoutesFile,
        addresses: Callable[[str], Sequence[Address]],
        *,
        limits: ForwardLimits | None = None,
        source: str | None = None,
    ) -> None:
        self._routes = routes
        self._addresses = addresses
        self._limits = limits or ForwardLimits()
        self._source = source
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log_class=_RequestLog, access_log=_logger, shutdown_timeout=5)

    async def __aenter__(self) -> Self:
        limits = self._limits
        self._session = ClientSession(
            connector=TCPConnector(limit=_CONNECTIONS, local_addr=(self._source, 0) if self._source else None),
            # Without a total: a stream may take as long as it moves.
            timeout=ClientTimeout(total=None, connect=limits.connect, sock_read=limits.silence),
            auto_decompress=False,
            skip_auto_headers=_ADDED,
        )
        await self._runner.setup()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def listen(self, host: str, port: int) -> Address:
        """Accept connections, and return the address. Port 0: a free one."""
        await web.TCPSite(self._runner, host, port).start()
        bound_host, bound_port, *_ = self._runner.addresses[-1]
        return str(bound_host), int(bound_port)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        service = self._routes.table.service_for(request.headers.get("Host", ""), request.headers)
        if service is None:
            return _refusal(request, 404, "the Router has no route for this host")
        request[_SERVICE] = service
        answer = await self._send(request, self._addresses(service)[: self._limits.attempts])
        if isinstance(answer, web.Response):
            return answer
        try:
            return await self._relay(request, answer)
        finally:
            # A response that was read to its end has given its connection back already.
            answer.close()

    async def _send(self, request: web.Request, addresses: Sequence[Address]) -> ClientResponse | web.Response:
        """Return the response of the first pod that accepts a connection, its body unread; or the response that says why there is none."""
        if not addresses:
            return _refusal(request, 503, "no pod of this Service is ready")
        headers = _forwarded(request.headers)
        headers.add("Via", _VIA)
        for host, port in addresses:
            request[_POD] = f"{host}:{port}"
            # Encoded: the pod gets the path byte by byte as the client wrote it.
            url = URL(f"http://{host}:{port}{_target(request.raw_path)}", encoded=True)
            body = self._body(request) if request.can_read_body else None
            try:
                return await self._session.request(request.method, url, headers=headers, data=body, allow_redirects=False)
            except (ClientConnectorError, ConnectionTimeoutError) as error:
                _logger.warning("no connection to %s:%d: %s", host, port, type(error).__name__)
            except TimeoutError:
                return _refusal(request, 504, "the pod did not answer in time")
            except ClientError as error:
                return _refusal(request, 502, f"the pod sent no valid response ({type(error).__name__})")
        return _refusal(request, 502, "no pod of this Service accepts connections")

    async def _body(self, request: web.Request) -> AsyncIterator[bytes]:
        while True:
            async with asyncio.timeout(self._limits.silence):
                chunk = await request.content.readany()
            if not chunk:
                return
            yield chunk

    async def _relay(self, request: web.Request, answer: ClientResponse) -> web.StreamResponse:
        headers = _forwarded(answer.headers)
        headers.add("Via", _VIA)
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
        await response.prepare(request)
        while True:
            try:
                chunk = await answer.content.readany()
            except (ClientError, TimeoutError) as error:
                request[_ERROR] = f"the response broke off ({type(error).__name__})"
                if request.transport is not None:
                    request.transport.abort()
                return response
            if not chunk:
                return response
            async with asyncio.timeout(self._limits.silence):
                await response.write(chunk)


class _RequestLog(AbstractAccessLogger):
    """Logs each request as one line: method, host, path, status, Service, pod, bytes sent, milliseconds, error."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        length = response.body_length if response.prepared else 0
        words = (
            request.method,
            # Quoted where it is no plain word: a header may have spaces and letters of any alphabet.
            ascii(request.headers.get("Host", "-")).strip("'"),
            request.raw_path,
            f"-> {response.status}",
            request.get(_SERVICE, "-"),
            request.get(_POD, "-"),
            f"{length} B",
            f"{time * 1000:.1f} ms",
            request.get(_ERROR, ""),
        )
        self.logger.info("%s", " ".join(str(word) for word in words).rstrip())


def _forwarded(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Return the headers without those of the connection, which it may name itself."""
    copy = CIMultiDict(headers)
    for name in (*_HOP_BY_HOP, *_listed(headers.getall("Connection", ()))):
        copy.popall(name, None)
    return copy


def _listed(values: Iterable[str]) -> list[str]:
    return [name.strip() for value in values for name in value.split(",")]


def _target(sent: str) -> str:
    """Return path and query of a request's target, which may be a whole URL (RFC 9112, 3.2.2), without a fragment."""
    path = sent if sent.startswith("/") else "/" + sent.partition("://")[2].partition("/")[2]
    return path.partition("#")[0]


def _refusal(request: web.Request, status: int, text: str) -> web.Response:
    request[_ERROR] = text
    headers: LooseHeaders = {"Via": _VIA, **({"Retry-After": "1"} if status == 503 else {})}
    return web.Response(status=status, text=f"{text}\n", headers=headers)


@click.command()
@click.option("--routes", required=True, type=click.Path(path_type=Path, dir_okay=False), help="Hosts, headers and weights: YAML or JSON.")
@click.option("--namespace", default="shop", show_default=True, help="Namespace of the Services.")
@click.option("--listen", default="127.0.0.9:8080", show_default=True, help="Address of the Router; it connects to pods from there too.")
@click.option("--kubeconfig", help="The API server. Default: $KUBECONFIG, ~/.kube/config, or the pod's own cluster.")
def main(routes: Path, namespace: str, listen: str, kubeconfig: str | None) -> None:
    """Forward requests to pods until SIGINT or SIGTERM."""
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
    host, _, port = listen.rpartition(":")

    async def run() -> None:
        async with Client.from_config(kubeconfig) as client, InformerFactory(client) as informers:
            addresses = ServiceAddresses(informers, namespace)
            await informers.wait_synced()
            table = RoutesFile(routes)
            async with TrafficRouter(table, addresses, source=host) as router:
                print("listening on http://{}:{}".format(*await router.listen(host, int(port))), flush=True)
                await table.follow()

    kubeloop.run(run())


if __name__ == "__main__":
    main()
