"""Requests to one cluster: authenticate, limit, send, retry where Kubernetes clients may, and raise what was refused.

Source: client-go rest/request.go and rest/with_retry.go; https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Self, TypeAlias
from urllib.parse import urlencode, urlsplit

from kubeloop.config import Authenticator, ClusterConfig
from kubeloop.meta.errors import DeadlineError, TransportError
from kubeloop.meta.type_checks import described
from kubeloop.timing import Clock, SystemClock, TimeLimit, TokenBucket
from kubeloop.transport.answer import Response
from kubeloop.transport.hooks import Hook
from kubeloop.transport.limits.failure_backoff import FailureBackoff
from kubeloop.transport.request_executor import MAX_ANSWER, PATIENCE, Call, Calls, TransportOptions
from kubeloop.transport.retry import MAX_RETRIES
from kubeloop.transport.user_agent import default_user_agent
from kubeloop.transport.warnings import WarningHandler, log_once, warnings_in

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from kubeloop.transport.limits.in_flight import InFlightLimiter
    from kubeloop.transport.observing.counters import RequestCounters
    from kubeloop.transport.observing.metrics import TransportMetrics
    from kubeloop.transport.round_tripper import Answer, Sender
    from kubeloop.transport.upgraded import Upgraded

Query: TypeAlias = Mapping[str, str | int | bool | list[str] | None]
"""Parameters of a URL; None leaves one out, a boolean is written as Kubernetes does, a list repeats the parameter."""

#: Seconds for a request with all its tries, unless a call says otherwise. ``math.inf`` is none.
REQUEST_TIMEOUT = 900.0
#: Seconds. What is asked to change may itself have to reach a node first, for which kube-apiserver has 30 s.
UPGRADE_TIMEOUT = 60.0


class Stream:
    """A body that is read as it comes. Made by ``Transport.stream``; ends with its block."""

    def __init__(self, answer: Answer, silence: float | None) -> None:
        self._answer = answer
        self._silence = silence
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """Pieces as the socket gives them, cut anywhere; ends when the server ends the body.

        Raises:
            TransportError: the connection broke in the middle, or nothing came for as long as ``Transport.stream`` was told.
        """
        chunk = self._answer.chunk
        while data := await chunk(self._silence):
            yield data
            data = b""  # not kept while the stream is silent, which a watch may be for hours


class Transport:
    """One pool of connections to one cluster, used by everything that talks to it. For one event loop.

    Guarantees
        A cancelled call closes its socket, so that the server sees the end at once.
        A body is sent again only after 429 or 5xx with ``Retry-After``, or (GET only) when the connection broke; at most 10 times.
        At most ``limits.places.MAX_REQUESTS`` requests run at the same time, fewer while the server answers 429; streams are not counted.
        Credentials never reach a log record.
        Every wait of a request ends: for a connection (30 s), for the next bytes of its answer (``patience``), and in all (``timeout``).

    Not guaranteed
        That a write which ended in ``TransportError`` was not carried out.
        An end of a stream that falls silent, without ``silence``; that the peer has vanished is noticed within about 45 s.
        A bound for what a stream brings in all; about 1 MiB of it is held at a time.
        Redirects: they are errors, so that credentials go nowhere else.
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
        patience: float = PATIENCE,
        hooks: Iterable[Hook] = (),
        warning_handler: WarningHandler | None = None,
        sender: Sender | None = None,
    ) -> None:
        """``limiter`` bounds this process' requests (client-go's default is ``TokenBucket(5, 10)``); without one the server's priority and
        fairness decides alone. ``backoff`` pauses before each request while the server fails; without one the environment variables
        KUBE_CLIENT_BACKOFF_BASE and KUBE_CLIENT_BACKOFF_DURATION decide, as in client-go. Both leave changes of protocol alone.

        ``max_answer``: bytes of an answer, unpacked, that ``request`` holds in memory. ``timeout``: seconds for a request with all its
        tries. ``patience``: seconds without any byte of an answer. ``hooks`` see each try in this order, its answer in reverse.
        ``warning_handler`` hears the server's warnings; None logs each text once. ``sender`` takes the place of connections: for servers in
        this process.

        Raises:
            ConfigError: the environment asks for a back-off that cannot be.
            ValueError: ``max_retries`` below 0, or another limit not above 0.
        """
        if max_retries < 0 or max_answer <= 0 or timeout <= 0 or patience <= 0:
            raise ValueError(f"limits are above 0, and retries not below it: {max_retries=} {max_answer=} {timeout=} {patience=}")
        self.config = config
        self._clock: Clock = clock or SystemClock()
        self._timeout = timeout
        self._authenticator = Authenticator(config, self._clock)
        self._manners = TransportOptions(
            limiter=limiter,
            backoff=backoff or FailureBackoff.from_environment(self._clock),
            hooks=tuple(hooks),
            warning_handler=warning_handler or log_once(),
            user_agent=user_agent or default_user_agent(),
            max_retries=max_retries,
            max_answer=max_answer,
            patience=patience,
        )
        self._calls = Calls(config, self._clock, self._authenticator, self._manners, self._open)
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
        """The server as metrics call it: ``10.0.0.1:6443``."""
        return urlsplit(self.config.server).netloc

    @property
    def figures(self) -> RequestCounters:
        """What this transport has counted so far."""
        return self._manners.figures

    @property
    def places(self) -> InFlightLimiter:
        """How many requests may run at a time."""
        return self._manners.places

    def metrics(self, registry: CollectorRegistry | None = None) -> None:
        """Show what this transport counts as Prometheus metrics, under client-go's names (``rest_client_requests_total`` ...), until it is
        closed; what it counted stays. ``registry`` None is prometheus_client's default one.

        Raises:
            ValueError: another collector of the registry has metrics of these names.
        """
        from kubeloop.transport.observing.metrics import metrics_of

        collector = metrics_of(registry)
        collector.add(self)
        if collector not in self._shown:
            self._shown.append(collector)

    def limit(self, limiter: TokenBucket | None) -> None:
        """Bound requests by ``limiter`` from the next try on; None: not at all."""
        self._manners.limiter = limiter

    def add_hook(self, hook: Hook) -> Callable[[], None]:
        """From the next try on, ``hook`` sees requests too, after those that are there. What is returned removes it; twice does nothing."""
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
        """Send and read the whole answer. ``timeout`` in seconds is for all tries together; None: the transport's, ``math.inf``: none.

        Raises:
            ApiError: the server answered with 400 or above; the child says why.
            TransportError: no answer: refused, reset, untrusted certificate, silent or too large; or a redirect.
            ValueError: a path or header that cannot be sent.
            DeadlineError: no answer within ``timeout``, or there could be none.
        """
        seconds = self._timeout if timeout is None else timeout
        started = self._clock.now()
        call = self._call(method, path, query, body, content_type, accept, headers, whole=True)
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
        silence: float | None = None,
    ) -> AbstractAsyncContextManager[Stream]:
        """Send and hand over the body as it comes, uncompressed. Leaving the block frees the socket at once.

        ``retry`` False: the first answer counts, also 429 and 503: for callers that have a back-off of their own. ``silence``: the longest
        time in seconds without any byte of the body; None: for ever. A watch passes no limiter at its first try.

        Raises:
            ApiError, TransportError: as ``request``; ``TransportError`` also while chunks are read. A broken stream is never repeated here.
            DeadlineError: the server put it off for longer than the transport's ``timeout``.
        """
        call = self._call(method, path, query, body, content_type, accept, headers, whole=False)
        call.retry = retry
        call.free = bool(query and query.get("watch"))
        return self._stream(call, silence)

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
        """Ask the server to change to another protocol (``websocket``, ``SPDY/3.1``) and hand over the connection (RFC 9110, section 7.8).

        The request has a connection of its own, is sent once (never repeated), and passes no limiter, as in client-go. Headers
        ``Connection`` and ``Upgrade`` are written here, those of the other protocol (``Sec-WebSocket-Key``) by the caller, who checks what
        the server answered to them. Leaving the block ends the connection. ``timeout`` in seconds is for the change, not for what follows.

        Raises:
            ApiError: the server answered with 400 or above; the child says why.
            NotUpgradedError: it answered with another status than 101.
            TransportError: no answer, or a redirect. DeadlineError: no change within ``timeout``; None is the transport's.
        """
        call = self._call(method, path, query, None, "", "*/*", headers, whole=False)
        call.upgrade, call.retry = protocol, False
        return self._upgrade(call, timeout)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called: then nothing can be asked any more, and to try again is of no use."""
        return self._closed

    async def close(self) -> None:
        """Close all connections; calls that run end with ``TransportError``. May be called twice."""
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
    async def _stream(self, call: Call, silence: float | None) -> AsyncIterator[Stream]:
        answer = await self._head(call, self._timeout)
        try:
            coding = answer.headers.get("Content-Encoding", "").strip().lower() or "identity"
            if coding != "identity":
                raise TransportError(
                    f"{self.config.server}: the answer is compressed ({coding}), which was not asked for; "
                    f"correct what stands between ({call.asked})"
                )
            yield Stream(answer, silence)
        finally:
            answer.close()

    @asynccontextmanager
    async def _upgrade(self, call: Call, timeout: float | None) -> AsyncIterator[Upgraded]:
        from kubeloop.http1.grammar import is_protocol_name
        from kubeloop.transport.upgraded import NotUpgradedError, Upgraded

        protocol = call.upgrade
        if not is_protocol_name(protocol):
            raise ValueError(f"{protocol!r} is no name of a protocol; write it as websocket or SPDY/3.1 ({call.asked})")
        answer = await self._head(call, self._timeout if timeout is None else timeout)
        try:
            if answer.status != 101:
                raise NotUpgradedError(
                    f'{self.config.server} (cluster "{self.config.name}"): HTTP status {answer.status} where a change to {protocol} was '
                    f"asked for; does a proxy between leave out Upgrade headers? ({call.asked})"
                )
            yield Upgraded(answer)
        finally:
            answer.close()

    async def _head(self, call: Call, seconds: float) -> Answer:
        """An answer whose body is still to come."""
        call.ends = None if seconds == math.inf else self._clock.now() + seconds
        try:
            async with TimeLimit(self._clock, seconds) as deadline:
                return (await self._calls.make(call))[0]
        except TimeoutError as error:
            if not deadline.expired:
                raise
            what = f"change to {call.upgrade}" if call.upgrade else "answer"
            raise self._late(f"no {what} within {seconds:g} s", call) from error

    def _late(self, what: str, call: Call) -> DeadlineError:
        previous = f" - error from a previous attempt: {call.previous}" if call.previous else ""
        return DeadlineError(f"{self.config.server}: {what} ({call.words}){previous}")

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
            # Sockets and TLS are not needed to import kubeloop, only to talk.
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
        whole: bool,
    ) -> Call:
        target = f"{path}?{encoded}" if (encoded := _encode(query)) else path
        return Call(method, path, target, query, body, content_type if body is not None else "", accept, headers, whole)


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
