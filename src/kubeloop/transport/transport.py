"""Requests to one cluster: authenticate, limit, send, retry where Kubernetes clients may, and raise what was refused.

Source: client-go rest/request.go and rest/with_retry.go; https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Self, TypeAlias
from urllib.parse import urlencode

from kubeloop.config import Authenticator, ClusterConfig, Credentials
from kubeloop.config.authenticator import impersonation_headers
from kubeloop.meta.errors import DeadlineError, TransportError
from kubeloop.meta.version import VERSION
from kubeloop.timing import Clock, SystemClock, TokenBucket
from kubeloop.transport.answer import Response, error_of, retry_after, warnings_of
from kubeloop.transport.describe import describe
from kubeloop.transport.log_context import log_context, logger_with_context

if TYPE_CHECKING:
    from kubeloop.transport.connection import Answer, Connections
    from kubeloop.transport.upgraded import Upgraded

_logger = logger_with_context("kubeloop.transport")

Query: TypeAlias = Mapping[str, str | int | bool | list[str] | None]
"""Parameters of a URL; None leaves one out, a boolean is written as Kubernetes does, a list repeats the parameter."""

MAX_RETRIES = 10
MAX_REQUESTS = 100
"""Requests at the same time; more wait. Streams are not counted: a watch would hold its place for minutes."""
#: Seconds. What is asked to change may itself have to reach a node first, for which kube-apiserver has 30 s.
UPGRADE_TIMEOUT = 60.0
# client-go waits as long between two reads of a connection that breaks (rest/with_retry.go, retryAfterResponse).
_AFTER_RESET = 1
_REDIRECTS = (301, 302, 303, 307, 308)
_SECRET_HEADERS = ("authorization", "proxy-authorization", "cookie")
_REMEMBERED_WARNINGS = 1000


class Stream:
    """A body that is read as it comes. Made by ``Transport.stream``; ends with its block."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """Pieces as the socket gives them, cut anywhere; ends when the server ends the body.

        Raises:
            TransportError: the connection broke in the middle.
        """
        chunk = self._answer.chunk
        while data := await chunk():
            yield data


class Transport:
    """One pool of connections to one cluster, used by everything that talks to it. For one event loop.

    Guarantees
        A cancelled call closes its socket, so that the server sees the end at once.
        A body is sent again only after 429 or 5xx with ``Retry-After``, or (GET only) when the connection broke; at most 10 times.
        At most ``MAX_REQUESTS`` requests have a connection at the same time, and each stream has one more.
        Credentials never reach a log record.

    Not guaranteed
        That a write which ended in ``TransportError`` was not carried out.
        An answer, without ``timeout``, from a server that is there but says nothing. One that vanished is noticed within about a minute.
        A bound for what a server sends: ``request`` holds the whole answer, unpacked, in memory; ``stream`` holds about 1 MiB.
        Redirects: they are errors, so that credentials go nowhere else.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        clock: Clock | None = None,
        limiter: TokenBucket | None = None,
        user_agent: str = "",
        max_retries: int = MAX_RETRIES,
    ) -> None:
        """``limiter`` bounds this process' requests; without one the server's priority and fairness decides alone."""
        self.config = config
        self._clock: Clock = clock or SystemClock()
        self._limiter = limiter
        self._user_agent = user_agent or _user_agent()
        self._max_retries = max_retries
        self._authenticator = Authenticator(config, self._clock)
        impersonate = config.credentials.impersonate
        self._impersonation = impersonation_headers(impersonate) if impersonate else []
        self._connections: Connections | None = None
        self._places = asyncio.Semaphore(MAX_REQUESTS)
        self._closed = False
        self._warned: set[str] = set()

    @property
    def cluster(self) -> str:
        """The cluster's name, as in ``ObjectKey.cluster``."""
        return self.config.name

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
        """Send and read the whole answer. ``timeout`` in seconds is for all tries together.

        Raises:
            ApiError: the server answered with 400 or above; the child says why.
            TransportError: no answer: refused, reset, untrusted certificate; or a redirect.
            ValueError: a path or header that cannot be sent.
            DeadlineError: no answer within ``timeout``.
        """
        try:
            async with asyncio.timeout(timeout):
                answer, content = await self._send(method, path, query, body, content_type, accept, headers, read=True)
                answer.close()
                return Response(answer.status, answer.headers, content, self._warnings(answer))
        except TimeoutError as error:
            if timeout is None:
                raise
            raise DeadlineError(f"{self.config.server}: no answer within {timeout:g} s ({describe(method, path, query)})") from error

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
    ) -> AbstractAsyncContextManager[Stream]:
        """Send and hand over the body as it comes, uncompressed. Leaving the block frees the socket at once.

        ``retry`` False: the first answer counts, also 429 and 503: for callers that have a back-off of their own.

        Raises:
            ApiError, TransportError: as ``request``; ``TransportError`` also while chunks are read. A broken stream is never repeated here.
        """
        return self._stream(method, path, query, body, content_type, accept, {"Accept-Encoding": "identity", **(headers or {})}, retry)

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
            TransportError: no answer, or a redirect. DeadlineError: no answer within ``timeout``.
        """
        return self._upgrade(method, path, protocol, query, headers, timeout)

    async def close(self) -> None:
        """Close all connections; calls that run end with ``TransportError``. May be called twice."""
        self._closed = True
        if self._connections is not None:
            await self._connections.close()
            self._connections = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def _stream(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: bytes | None,
        content_type: str,
        accept: str,
        headers: Mapping[str, str],
        retry: bool,
    ) -> AsyncIterator[Stream]:
        answer, _ = await self._send(method, path, query, body, content_type, accept, headers, read=False, retry=retry)
        try:
            if answer.coding != "identity":
                raise TransportError(
                    f"{self.config.server}: the answer is compressed ({answer.coding}), which was not asked for; "
                    f"correct what stands between ({describe(method, path, query)})"
                )
            self._warnings(answer)
            yield Stream(answer)
        finally:
            answer.close()

    @asynccontextmanager
    async def _upgrade(
        self, method: str, path: str, protocol: str, query: Query | None, headers: Mapping[str, str] | None, timeout: float | None
    ) -> AsyncIterator[Upgraded]:
        from kubeloop.transport.request_head import is_protocol_name
        from kubeloop.transport.upgraded import NotUpgradedError, Upgraded

        asked = describe(method, path, query)
        if not is_protocol_name(protocol):
            raise ValueError(f"{protocol!r} is no name of a protocol; write it as websocket or SPDY/3.1 ({asked})")
        try:
            async with asyncio.timeout(timeout):
                answer, _ = await self._send(
                    method, path, query, None, "", "*/*", {"Accept-Encoding": "identity", **(headers or {})}, read=False, protocol=protocol
                )
        except TimeoutError as error:
            if timeout is None:
                raise
            raise DeadlineError(f"{self.config.server}: no change to {protocol} within {timeout:g} s ({asked})") from error
        try:
            if answer.status != 101:
                raise NotUpgradedError(
                    f'{self.config.server} (cluster "{self.config.name}"): HTTP status {answer.status} where a change to {protocol} was '
                    f"asked for; does a proxy between leave out Upgrade headers? ({asked})"
                )
            yield Upgraded(answer)
        finally:
            answer.close()

    async def _send(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: bytes | None,
        content_type: str,
        accept: str,
        headers: Mapping[str, str] | None,
        *,
        read: bool,
        retry: bool = True,
        protocol: str = "",
    ) -> tuple[Answer, bytes]:
        """An answer below 400, after as many tries as it took; with its body if ``read``. The caller closes it.

        With ``protocol``, the one to change to, there is one try, which no limiter holds back.
        """
        retry = retry and not protocol
        target = f"{path}?{encoded}" if (encoded := _encode(query)) else path
        asked = describe(method, path, query)
        attempt = 0
        with log_context(cluster=self.cluster, method=method, path=path):
            while True:
                if self._limiter is not None and not protocol:
                    await self._limiter.take()
                sent = await self._headers(content_type if body is not None else "", accept, headers)
                last = attempt >= self._max_retries or not retry
                try:
                    answer, content = await self._try(method, target, sent, body, asked, read=read, protocol=protocol)
                except TransportError as error:
                    # Upstream repeats nothing but reads here: a write may have been carried out.
                    if last or self._closed or not (read and method == "GET" and _was_reset(error)):
                        raise
                    # At once after the first: most likely the server closed an idle connection just then.
                    delay, why = _AFTER_RESET if attempt else 0, "connection reset"
                else:
                    if answer.status < 400 and answer.status not in _REDIRECTS:
                        return answer, content
                    answer.close()
                    if answer.status < 400:
                        raise self._redirected(answer, asked)
                    wait = retry_after(answer.headers) if answer.status == 429 or answer.status >= 500 else None
                    if wait is None or last:
                        raise error_of(answer.status, answer.headers, content, method, self._asked(asked, answer.status, attempt))
                    delay, why = wait, f"HTTP status {answer.status}"
                attempt += 1
                _logger.info("%s: trying again in %d s (%s)", asked, delay, why)
                await self._clock.sleep(delay)

    async def _try(
        self, method: str, target: str, sent: list[tuple[str, str]], body: bytes | None, asked: str, *, read: bool, protocol: str = ""
    ) -> tuple[Answer, bytes]:
        if not read:
            return await self._try_once(method, target, sent, body, asked, read=False, protocol=protocol)
        async with self._places:
            return await self._try_once(method, target, sent, body, asked, read=True)

    async def _try_once(
        self, method: str, target: str, sent: list[tuple[str, str]], body: bytes | None, asked: str, *, read: bool, protocol: str = ""
    ) -> tuple[Answer, bytes]:
        started = self._clock.now()
        answer = await self._open().send(method, target, sent, body, asked, protocol)
        try:
            content = await answer.read() if read or answer.status >= 300 else b""
        except BaseException:
            answer.close()
            raise
        if read:
            # The connection must be free before the place is: whoever comes next takes it instead of making another.
            answer.close()
        if answer.status == 401:
            self._authenticator.refused(dict(sent))
        if _logger.isEnabledFor(logging.DEBUG):
            shown = {name: "<redacted>" if name.lower() in _SECRET_HEADERS else value for name, value in sent}
            _logger.debug("HTTP status %d after %.1f ms, headers sent: %s", answer.status, (self._clock.now() - started) * 1000, shown)
        return answer, content

    def _redirected(self, answer: Answer, asked: str) -> TransportError:
        location = answer.headers.get("Location", "").partition("?")[0]
        return TransportError(
            f'{self.config.server} (cluster "{self.config.name}"): HTTP status {answer.status} sends on to "{location}", which is not '
            f"followed; is server in {self.config.source} the API server's own address? ({asked})"
        )

    def _open(self) -> Connections:
        if self._closed:
            raise TransportError(f'{self.config.server} (cluster "{self.config.name}"): this transport is closed; open a new client')
        if self._connections is None:
            # Sockets and TLS are not needed to import kubeloop, only to talk.
            from kubeloop.transport.connection import Connections

            self._connections = Connections(self.config, self._authenticator, self._clock, self._user_agent)
        return self._connections

    async def _headers(self, content_type: str, accept: str, more: Mapping[str, str] | None) -> list[tuple[str, str]]:
        headers = {"Accept": accept, "Accept-Encoding": "identity" if self.config.disable_compression else "gzip"}
        if content_type:
            headers["Content-Type"] = content_type
        if more:
            # The caller's own win, however they are spelled: one header twice may be read in two ways.
            own = {name.lower() for name in more}
            headers = {name: value for name, value in headers.items() if name.lower() not in own} | dict(more)
        # With an Authorization header of the caller's own no plugin runs (client-go transport/round_trippers.go).
        if not more or "authorization" not in own:
            headers |= await self._authenticator.headers()
        return [*headers.items(), *self._impersonation]

    def _asked(self, asked: str, status: int, attempt: int) -> str:
        """The request in words, with what helps the reader of the error."""
        if attempt:
            asked = f"{asked}, tried {attempt + 1} times"
        if status == 401:
            user = self.config.credentials
            fault = "there are no credentials" if user == Credentials(owner=user.owner) else "they are unknown or expired: renew them"
            asked = f"{asked}; credentials: {user.owner}: {fault}"
        return asked

    def _warnings(self, answer: Answer) -> tuple[str, ...]:
        if "Warning" not in answer.headers:
            return ()
        warnings = warnings_of(answer.headers.values_of("Warning"))
        for warning in warnings:
            if warning not in self._warned and len(self._warned) < _REMEMBERED_WARNINGS:
                self._warned.add(warning)
                _logger.warning("the server warns: %s", warning)
        return warnings


def _was_reset(error: TransportError) -> bool:
    from kubeloop.transport.failure import IncompleteAnswerError

    return isinstance(error, IncompleteAnswerError)


def _encode(query: Query | None) -> str:
    if not query:
        return ""
    return urlencode(
        [
            (name, ("true" if value else "false") if isinstance(value, bool) else value)
            for name, values in query.items()
            for value in (values if isinstance(values, list) else [values])
            if value is not None
        ]
    )


def _user_agent() -> str:
    program = sys.argv[0].rpartition("/")[2] if sys.argv and sys.argv[0] else "python"
    name = "".join(one for one in program if one.isascii() and (one.isalnum() or one in "-_.")) or "python"
    return f"{name}/kubeloop-{VERSION} ({sys.platform}/{os.uname().machine if hasattr(os, 'uname') else 'unknown'})"
