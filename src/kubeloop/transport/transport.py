"""``Transport`` sends requests to one cluster. It authenticates, limits and retries them as client-go does, and raises the server's errors.

Source: client-go rest/request.go and rest/with_retry.go; https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Self, TypeAlias
from urllib.parse import urlencode, urlsplit

from kubeloop.config import ClusterConfig, RequestAuthenticator
from kubeloop.meta.errors import DeadlineError, TransportError
from kubeloop.meta.type_checks import described
from kubeloop.timing import Clock, SystemClock, TimeLimit, TokenBucket
from kubeloop.transport.answer import Response, WarningHandler, log_once, warnings_in
from kubeloop.transport.errors import MAX_RETRIES
from kubeloop.transport.hooks import Hook
from kubeloop.transport.limits import FailureBackoff
from kubeloop.transport.request_executor import MAX_ANSWER, PATIENCE, RequestCall, RequestExecutor, TransportOptions
from kubeloop.transport.user_agent import default_user_agent

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from kubeloop.transport.instrumentation.counters import RequestCounters
    from kubeloop.transport.instrumentation.metrics import TransportMetrics
    from kubeloop.transport.limits import InFlightLimiter
    from kubeloop.transport.round_tripper import ResponseHead, Sender, Upgraded

Query: TypeAlias = Mapping[str, str | int | bool | list[str] | None]
"""Parameters of a URL; None leaves one out, a boolean is written as Kubernetes does, a list repeats the parameter."""

#: Default seconds for a request with all its tries. ``math.inf``: no limit.
REQUEST_TIMEOUT = 900.0
#: Seconds. A change of protocol may require a connection to a node first, for which kube-apiserver allows 30 s.
UPGRADE_TIMEOUT = 60.0


class Stream:
    """The body of a response, read while it arrives. ``Transport.stream`` creates it, and leaving the block closes it.

    Example:
        >>> async with Transport(cluster.config) as transport, transport.stream("GET", "/healthz") as stream:
        ...     b"".join([chunk async for chunk in stream.chunks()])
        b'ok'
    """

    def __init__(self, answer: ResponseHead, idle_timeout: float | None) -> None:
        self._answer = answer
        self._silence = idle_timeout
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield chunks as the socket delivers them, until the server ends the body.

        Raises:
            TransportError: The connection broke, or nothing arrived for ``idle_timeout`` seconds (``Transport.stream``).
        """
        chunk = self._answer.chunk
        while data := await chunk(self._silence):
            yield data
            data = b""  # not referenced while the stream is silent, which a watch may be for hours


class Transport:
    """An HTTP client of one cluster. It has one connection pool, which all users in the process may share. For one event loop.

    Guarantees
        A cancelled call closes its socket, so that the server notices at once.
        A body is sent again only after 429 or 5xx with ``Retry-After``, or (GET only) when the connection broke; at most 10 times.
        At most ``limits.MAX_REQUESTS`` requests run at the same time, fewer while the server answers 429; streams are not counted.
        Credentials never reach a log record.
        Each wait of a request has a limit: 30 s for a connection, ``read_timeout`` for the response's next bytes, ``timeout`` in total.

    Not guaranteed
        A write that ended in ``TransportError`` may have been executed.
        Without ``idle_timeout``, a stream without data is never ended, but an unreachable peer is detected within about 45 s.
        The total size of a stream is not limited; about 1 MiB of it is buffered at a time.
        Redirects are not followed, so that credentials are not sent to another server. They are raised as errors.

    Example:
        >>> async with Transport(cluster.config) as transport:
        ...     response = await transport.request("GET", "/api/v1/namespaces/default")
        >>> response.status
        200
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        clock: Clock | None = None,
        limiter: TokenBucket | None = None,
        backoff: FailureBackoff | None = None,
        user_agent: str = "",
        max_retries: int = MAX_RETRIES,
        max_answer: int = MAX_ANSWER,
        timeout: float = REQUEST_TIMEOUT,
        read_timeout: float = PATIENCE,
        hooks: Iterable[Hook] = (),
        warning_handler: WarningHandler | None = None,
        sender: Sender | None = None,
    ) -> None:
        """Create a transport for a cluster.

        Args:
            config: The cluster and the credentials.
            clock: Measures timeouts. None: the system's clock.
            limiter: Limits the rate of requests (client-go's default is ``TokenBucket(5, 10)``). None: only the server's priority and
                fairness limits them.
            backoff: Pauses before each request while the server fails. None: KUBE_CLIENT_BACKOFF_BASE and KUBE_CLIENT_BACKOFF_DURATION
                decide, as in client-go.
            user_agent: The User-Agent header. Empty: derived from the program.
            max_retries: Retries of one request.
            max_answer: Maximum bytes of a response, decompressed, that ``request`` holds in memory.
            timeout: Seconds for a request with all its attempts.
            read_timeout: Maximum seconds without any byte of a response.
            hooks: Called before each attempt in this order, and after it in reverse order.
            warning_handler: Receives the server's warnings. None: each text is logged once.
            sender: Sends the requests in place of the connection pool, for servers in this process.

        ``limiter`` and ``backoff`` do not apply to protocol upgrades.

        Raises:
            ConfigError: The environment's back-off is malformed.
            ValueError: ``max_retries`` is below 0, or another limit is not above 0.
        """
        if max_retries < 0 or max_answer <= 0 or timeout <= 0 or read_timeout <= 0:
            raise ValueError(f"limits must be above 0, and retries not negative: {max_retries=} {max_answer=} {timeout=} {read_timeout=}")
        self.config = config
        self._clock: Clock = clock or SystemClock()
        self._timeout = timeout
        self._authenticator = RequestAuthenticator(config, self._clock)
        self._manners = TransportOptions(
            limiter=limiter,
            backoff=backoff or FailureBackoff.from_environment(self._clock),
            hooks=tuple(hooks),
            warning_handler=warning_handler or log_once(),
            user_agent=user_agent or default_user_agent(),
            max_retries=max_retries,
            max_answer=max_answer,
            patience=read_timeout,
        )
        self._calls = RequestExecutor(config, self._clock, self._authenticator, self._manners, self._open)
        self._sender = sender
        self._shown: list[TransportMetrics] = []
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f'<Transport of cluster "{self.cluster}" at {self.config.server}>'

    @property
    def cluster(self) -> str:
        """The cluster's name, as in ``ObjectKey.cluster``."""
        return self.config.name

    @property
    def host(self) -> str:
        """The server's name in metrics: ``10.0.0.1:6443``."""
        return urlsplit(self.config.server).netloc

    @property
    def figures(self) -> RequestCounters:
        """The request counters of this transport."""
        return self._manners.figures

    @property
    def places(self) -> InFlightLimiter:
        """The limiter of concurrent requests."""
        return self._manners.places

    def metrics(self, registry: CollectorRegistry | None = None) -> None:
        """Publish this transport's counters as Prometheus metrics with client-go's names (``rest_client_requests_total`` ...).

        The counts are retained after the transport is closed. If ``registry`` is None, prometheus_client's default registry is used.

        Raises:
            ValueError: Another collector of the registry has metrics with these names.
        """
        from kubeloop.transport.instrumentation.metrics import metrics_of

        collector = metrics_of(registry)
        collector.add(self)
        if collector not in self._shown:
            self._shown.append(collector)

    def limit(self, limiter: TokenBucket | None) -> None:
        """Set the rate limiter for all attempts from now on. None removes the limit."""
        self._manners.limiter = limiter

    def add_hook(self, hook: Hook) -> Callable[[], None]:
        """Add a hook after the existing ones, for all attempts from now on.

        The returned function removes the hook; calling it twice has no effect.
        """
        self._manners.hooks = (*self._manners.hooks, hook)

        def remove() -> None:
            self._manners.hooks = tuple(one for one in self._manners.hooks if one is not hook)

        return remove

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Response:
        """Send a request and read the whole response.

        Args:
            method: The HTTP method.
            path: The path on the server, such as ``/api/v1/nodes``.
            query: Parameters of the URL.
            body: The request's body. None: the request has none.
            content_type: Media type of the body.
            accept: Accepted media types.
            headers: Additional headers.
            timeout: Seconds for all attempts together. None: the transport's timeout; ``math.inf``: no limit.

        Returns:
            The response.

        Raises:
            ApiError: The status is 400 or above; the subclass gives the reason.
            TransportError: No response (refused, reset, untrusted certificate, silent or too large), or a redirect.
            ValueError: A path or header is malformed.
            DeadlineError: No response arrived within ``timeout``, or the next attempt would begin after it.
        """
        seconds = self._timeout if timeout is None else timeout
        started = self._clock.now()
        call = self._call(method, path, query, body, content_type, accept, headers, buffered=True)
        call.ends = None if seconds == math.inf else started + seconds
        figures = self._manners.figures
        try:
            async with TimeLimit(self._clock, seconds) as deadline:
                answer, content = await self._calls.make(call)
        except TimeoutError as error:
            if not deadline.expired:
                raise
            raise self._late(f"no answer within {seconds:g} s", call) from error
        finally:
            figures.latency[method].observe(self._clock.now() - started)
        figures.response_size[method].observe(len(content))
        warnings = tuple(one.text for one in warnings_in(answer.headers.values_of("Warning"), "")) if "Warning" in answer.headers else ()
        return Response(answer.status, answer.headers, content, warnings)

    def stream(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
        retry: bool = True,
        idle_timeout: float | None = None,
    ) -> AbstractAsyncContextManager[Stream]:
        """Send a request and return the body as a stream, decompressed. Leaving the block frees the socket at once.

        Args:
            method: The HTTP method.
            path: The path on the server.
            query: Parameters of the URL.
            body: The request's body. None: none.
            content_type: Media type of the body.
            accept: Accepted media types.
            headers: Additional headers.
            retry: Whether to retry after 429 and 5xx with ``Retry-After``. Callers with their own back-off pass False.
            idle_timeout: Maximum seconds without any byte of the body. None: no limit.

        The rate limiter does not delay the first attempt of a watch.

        Raises:
            ApiError, TransportError: as ``request``; ``TransportError`` also while chunks are read. A broken stream is never repeated here.
            DeadlineError: the server asked to wait longer than the transport's ``timeout``.
        """
        call = self._call(method, path, query, body, content_type, accept, headers, buffered=False)
        call.retry = retry
        call.unlimited = bool(query and query.get("watch"))
        return self._stream(call, idle_timeout)

    def upgrade(
        self,
        method: str,
        path: str,
        *,
        protocol: str,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = UPGRADE_TIMEOUT,
    ) -> AbstractAsyncContextManager[Upgraded]:
        """Ask the server to upgrade to another protocol (``websocket``, ``SPDY/3.1``), and return the connection (RFC 9110, section 7.8).

        The request has its own connection. As in client-go, it is not retried and not limited. This method sets ``Connection`` and
        ``Upgrade``; the caller sets the headers of the new protocol (``Sec-WebSocket-Key``) and checks the server's response to them.
        Leaving the block closes the connection.

        Args:
            method: The HTTP method.
            path: The path on the server.
            protocol: The protocol to change to.
            query: Parameters of the URL.
            headers: Additional headers.
            timeout: Seconds until the upgrade is complete. It does not limit the use of the connection. None: the transport's timeout.

        Raises:
            ApiError: The server answered with 400 or above; the subclass gives the reason.
            NotUpgradedError: The server responded with another status below 400 than 101.
            TransportError: No response, or a redirect.
            DeadlineError: The upgrade was not complete within ``timeout``.
        """
        call = self._call(method, path, query, None, "", "*/*", headers, buffered=False)
        call.upgrade, call.retry = protocol, False
        return self._upgrade(call, timeout)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called. All calls fail then, so that retries are useless."""
        return self._closed

    async def close(self) -> None:
        """Close all connections. Running calls end with ``TransportError``. The method may be called twice."""
        self._closed = True
        self._calls.end()
        for collector in self._shown:
            collector.remove(self)
        self._shown.clear()
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def _stream(self, call: RequestCall, idle_timeout: float | None) -> AsyncIterator[Stream]:
        answer = await self._head(call, self._timeout)
        try:
            coding = answer.headers.get("Content-Encoding", "").strip().lower() or "identity"
            if coding != "identity":
                raise TransportError(
                    f"{self.config.server}: the answer is compressed ({coding}), which the client did not request; "
                    f"correct the proxy in between ({call.description})"
                )
            yield Stream(answer, idle_timeout)
        finally:
            answer.close()

    @asynccontextmanager
    async def _upgrade(self, call: RequestCall, timeout: float | None) -> AsyncIterator[Upgraded]:
        from kubeloop.http1.headers import is_protocol_name
        from kubeloop.transport.round_tripper import NotUpgradedError, Upgraded

        protocol = call.upgrade
        if not is_protocol_name(protocol):
            raise ValueError(f"{protocol!r} is not a valid name of a protocol; write it as websocket or SPDY/3.1 ({call.description})")
        answer = await self._head(call, self._timeout if timeout is None else timeout)
        try:
            if answer.status != 101:
                raise NotUpgradedError(
                    f'{self.config.server} (cluster "{self.config.name}"): HTTP status {answer.status} where a change to {protocol} was '
                    f"requested; does a proxy in between remove Upgrade headers? ({call.description})"
                )
            yield Upgraded(answer)
        finally:
            answer.close()

    async def _head(self, call: RequestCall, seconds: float) -> ResponseHead:
        """Return a response with an unread body."""
        call.ends = None if seconds == math.inf else self._clock.now() + seconds
        try:
            async with TimeLimit(self._clock, seconds) as deadline:
                return (await self._calls.make(call))[0]
        except TimeoutError as error:
            if not deadline.expired:
                raise
            what = f"change to {call.upgrade}" if call.upgrade else "answer"
            raise self._late(f"no {what} within {seconds:g} s", call) from error

    def _late(self, reason: str, call: RequestCall) -> DeadlineError:
        previous = f" - error from a previous attempt: {call.previous}" if call.previous else ""
        return DeadlineError(f"{self.config.server}: {reason} ({call.words}){previous}")

    def _open(self) -> Sender:
        if self._closed:
            raise TransportError(f'{self.config.server} (cluster "{self.config.name}"): this transport is closed; open a new client')
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None and not self._loop.is_closed():
                raise TransportError(
                    f'{self.config.server} (cluster "{self.config.name}"): this client belongs to another event loop, which is not closed; '
                    "use it in async functions of that loop (async def reconcile), or open a client of your own here"
                )
            self._loop = loop
        if self._sender is None:
            # Importing kubeloop needs no sockets and TLS, only requests do.
            from kubeloop.transport.connection import Connections

            self._sender = Connections(self.config, self._authenticator, self._clock, self._manners.figures)
        return self._sender

    def _call(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: bytes | None,
        content_type: str,
        accept: str,
        headers: Mapping[str, str] | None,
        *,
        buffered: bool,
    ) -> RequestCall:
        target = f"{path}?{encoded}" if (encoded := _encode(query)) else path
        return RequestCall(method, path, target, query, body, content_type if body is not None else "", accept, headers, buffered)


def _query_text(name: str, value: object) -> str | int | float:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return value
    raise TypeError(f"{name}={described(value)}: must be text, a number or a boolean, since it is part of the request's address")


def _encode(query: Query | None) -> str:
    if not query:
        return ""
    return urlencode(
        [
            (name, _query_text(name, value))
            for name, values in query.items()
            for value in (values if isinstance(values, list) else [values])
            if value is not None
        ]
    )
