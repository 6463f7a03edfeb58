"""Execution of one call to the server with all its attempts, from the rate limiter to a response below 400.

The first attempt passes the rate limiter, then the back-off, then the request is sent and counted. Each later attempt starts with a pause,
and then passes the rate limiter. This is client-go's order.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from kubeloop.config import ClusterConfig, Credentials, RequestAuthenticator
from kubeloop.config.authenticator import impersonation_headers
from kubeloop.meta.errors import ApiError, DeadlineError, TransportError
from kubeloop.transport.answer import WarningHandler, error_of, log_once, warnings_in
from kubeloop.transport.errors import MAX_RETRIES, RetryDecision, after_answer, after_failure
from kubeloop.transport.hooks import Hook, Outcome, SentRequest, without_secrets
from kubeloop.transport.instrumentation.counters import RequestCounters
from kubeloop.transport.limits import InFlightLimiter
from kubeloop.transport.log_context import log_context, logger_with_context
from kubeloop.transport.round_tripper import OutgoingRequest, ResponseHead, Sender, describe, parse_request_path
from kubeloop.transport.user_agent import default_user_agent

if TYPE_CHECKING:
    from kubeloop.timing import Clock, TokenBucket
    from kubeloop.transport.limits import FailureBackoff

_LOG = logger_with_context("kubeloop.transport")

_REDIRECTS = (301, 302, 303, 307, 308)
#: Longer waits for the limiter are logged (client-go's extraLongThrottleLatency).
_LONG_WAIT = 1.0


#: The response of Go's and nginx' servers to a request without TLS on a TLS port.
_PLAIN_TO_TLS = re.compile(rb"(?i)HTTP request (was sent )?to (an )?HTTPS (server|port)")
#: Seconds without any byte of a response. kube-apiserver itself gives a request 60 s.
PATIENCE = 120.0
#: Maximum bytes of a response in memory, decompressed: neither a server nor a proxy must be able to fill it.
MAX_ANSWER = 1 << 30


class TransportOptions(msgspec.Struct, kw_only=True):
    """Options of a transport beyond the configuration of its cluster."""

    limiter: TokenBucket | None = None
    backoff: FailureBackoff | None = None
    places: InFlightLimiter = msgspec.field(default_factory=InFlightLimiter)
    figures: RequestCounters = msgspec.field(default_factory=RequestCounters)
    hooks: tuple[Hook, ...] = ()
    warning_handler: WarningHandler = msgspec.field(default_factory=log_once)
    user_agent: str = msgspec.field(default_factory=default_user_agent)
    max_retries: int = MAX_RETRIES
    max_answer: int = MAX_ANSWER
    patience: float = PATIENCE


class RequestCall(msgspec.Struct):
    """One call to the server.

    ``buffered`` says that the response is read to its end, so that the request may be repeated. ``unlimited`` says that no limiter delays
    the first attempt.
    """

    method: str
    path: str
    target: str
    query: Mapping[str, object] | None
    body: bytes | None
    content_type: str
    accept: str
    headers: Mapping[str, str] | None
    buffered: bool
    retry: bool = True
    unlimited: bool = False
    upgrade: str = ""
    ends: float | None = None
    tries: int = 0
    previous: str = ""

    def __repr__(self) -> str:
        # Headers and body may be secret.
        return f"Call({self.description})"

    @property
    def description(self) -> str:
        """A description of the request for messages, built on demand."""
        return describe(self.method, self.path, self.query)

    @property
    def words(self) -> str:
        """A description of the request with the number of attempts, for messages."""
        return f"{self.description}, tried {self.tries} times" if self.tries > 1 else self.description

    def remaining(self, now: float) -> float | None:
        """Return the seconds until the deadline, or None if the call has no deadline."""
        return None if self.ends is None else self.ends - now


class RequestExecutor:
    """Executes the calls of one transport.

    Args:
        config: Address and credentials of the server.
        clock: Measures deadlines and pauses between attempts.
        authenticator: Adds credentials to requests, and renews them after a 401.
        manners: Limits, retries, hooks and metrics.
        sender: Returns the object that sends requests, or raises TransportError after ``close``.
    """

    def __init__(
        self,
        config: ClusterConfig,
        clock: Clock,
        authenticator: RequestAuthenticator,
        manners: TransportOptions,
        sender: Callable[[], Sender],
    ) -> None:
        self._config = config
        self._clock = clock
        self._authenticator = authenticator
        self._manners = manners
        self._sender = sender
        self._figures = manners.figures
        self._backoff = manners.backoff
        url = urlsplit(config.server)
        self._base = f"{url.scheme}://{url.netloc}{url.path.rstrip('/')}"
        impersonate = config.credentials.impersonate
        self._impersonation = impersonation_headers(impersonate) if impersonate else []
        self._where = f'{self._config.server} (cluster "{self._config.name}")'
        self._ended = False
        self._pauses: set[asyncio.Future[None]] = set()

    def end(self) -> None:
        """Wake the calls that wait for their next attempt. They fail because the transport is closed."""
        self._ended = True
        for pause in self._pauses:
            if not pause.done():
                pause.set_result(None)

    async def make(self, call: RequestCall) -> tuple[ResponseHead, bytes]:
        """Execute a call. Return a response below 400, with its body if ``call.buffered`` is set. The caller closes the response.

        Raises:
            ApiError, TransportError, ValueError: As ``Transport.request``.
            DeadlineError: A wait would exceed the call's deadline.
        """
        again: RetryDecision | None = None
        with log_context(cluster=self._config.name, method=call.method, path=call.path):
            while True:
                await self._hold_back(call, again)
                call.tries += 1
                try:
                    answer, content = await self._try(call)
                except TransportError as error:
                    again = after_failure(error, call.method, buffered=call.buffered, tries=call.tries)
                    if again is None or not self._may_retry(call):
                        raise _with_previous(error, call).with_traceback(None) from error.__cause__
                    call.previous = str(error)
                else:
                    if answer.status < 400 and answer.status not in _REDIRECTS:
                        return answer, content
                    answer.close()
                    if answer.status < 400:
                        raise self._redirected(answer, call)
                    again = after_answer(answer.status, answer.headers)
                    left = call.remaining(self._clock.now())
                    if again is None or not self._may_retry(call) or (left is not None and again.after > left):
                        raise self._refusal(answer, content, call)
                    call.previous = again.why
                _LOG.info("%s: retrying in %d s (%s)", call.description, again.after, again.why)

    def _may_retry(self, call: RequestCall) -> bool:
        return call.retry and call.tries <= self._manners.max_retries

    async def _hold_back(self, call: RequestCall, again: RetryDecision | None) -> None:
        """Wait until the next attempt is allowed."""
        pause = again.after if again is not None else 0.0
        if self._backoff is not None and not call.upgrade:
            pause = max(pause, self._backoff.pause())
        if again is None:
            await self._limit(call, again)
            await self._sleep(pause)
        else:
            await self._sleep(pause)
            await self._limit(call, again)

    async def _sleep(self, seconds: float) -> None:
        if seconds <= 0 or self._ended:
            return
        pause: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(seconds, lambda: None if pause.done() else pause.set_result(None))
        self._pauses.add(pause)
        try:
            await pause
        finally:
            self._pauses.discard(pause)
            timer.cancel()

    async def _limit(self, call: RequestCall, again: RetryDecision | None) -> None:
        limiter = self._manners.limiter
        if limiter is None or call.upgrade or (call.unlimited and again is None):
            return
        delay = limiter.reserve()
        try:
            left = call.remaining(self._clock.now())
            if left is not None and delay > left:
                raise DeadlineError(
                    f"{self._where}: this client's rate limit ({limiter.rate:g} requests per second) would hold the request back for "
                    f"{delay:.1f} s, longer than its deadline ({call.words})"
                )
            if delay > _LONG_WAIT:
                why = f"retry after {again.why}" if again is not None else "client-side throttling, not priority and fairness"
                _LOG.info("%s: waiting %.1f s for this client's rate limit (%s)", call.description, delay, why)
            await self._sleep(delay)
        except BaseException:
            limiter.give_back()
            raise
        self._figures.limiter[call.method].observe(delay)

    async def _try(self, call: RequestCall) -> tuple[ResponseHead, bytes]:
        if not call.buffered:
            return await self._try_once(call)
        async with self._manners.places:
            return await self._try_once(call)

    async def _try_once(self, call: RequestCall) -> tuple[ResponseHead, bytes]:
        sent = await self._headers(call)
        hooks = self._manners.hooks
        request: SentRequest | None = None
        if hooks:
            request = self._sent_request(call, sent)
            self._announce(hooks, request)
            sent = request.headers
        started = self._clock.now()
        answer: ResponseHead | None = None
        content = b""
        try:
            outgoing = OutgoingRequest(call.method, call.target, sent, call.body, call.upgrade, self._manners.patience)
            answer = await self._sender().send(outgoing)
            if call.buffered or answer.status >= 300:
                content = await answer.read(self._manners.max_answer)
        except BaseException as error:
            if answer is not None:
                answer.close()
            self._tried(call, None)
            if _LOG.isEnabledFor(logging.DEBUG):
                from kubeloop.transport.instrumentation.debug_log import log_failure

                log_failure(f"{self._base}{call.target}", call, error, self._clock.now() - started)
            if request is not None:
                self._tell(hooks, request, Outcome(self._clock.now() - started, error=error))
            raise
        if call.buffered:
            # Release the connection before the slot, so that the next request reuses the connection instead of opening another.
            answer.close()
            self._figures.request_size[call.method].observe(len(call.body or b""))
        self._tried(call, answer.status)
        if answer.status == 401:
            self._authenticator.refused(dict(sent), started)
        try:
            if "Warning" in answer.headers:
                for warning in warnings_in(answer.headers.values_of("Warning"), call.description):
                    self._manners.warning_handler(warning)
            if request is not None:
                size = len(content) if call.buffered else None
                self._tell(hooks, request, Outcome(self._clock.now() - started, answer.status, answer.headers, size))
            if _LOG.isEnabledFor(logging.DEBUG):
                from kubeloop.transport.instrumentation.debug_log import log_exchange

                log_exchange(f"{self._base}{call.target}", call, sent, answer, content, self._clock.now() - started)
        except BaseException:
            answer.close()
            raise
        return answer, content

    def _tried(self, call: RequestCall, status: int | None) -> None:
        self._figures.tried(status, call.method, call.tries - 1)
        if self._backoff is not None:
            self._backoff.outcome(status)
        if status == 429:
            self._manners.places.refused()
        elif status is not None:
            self._manners.places.answered()

    def _sent_request(self, call: RequestCall, sent: list[tuple[str, str]]) -> SentRequest:
        verb = parse_request_path(call.method, call.path, call.query).verb
        return SentRequest(call.method, f"{self._base}{call.target}", call.path, verb, call.description, sent, call.body, call.tries - 1)

    def _announce(self, hooks: tuple[Hook, ...], request: SentRequest) -> None:
        for place, hook in enumerate(hooks):
            try:
                hook.sending(request)
            except BaseException as error:
                self._tell(hooks[:place], request, Outcome(0.0, error=error))
                raise

    def _tell(self, hooks: tuple[Hook, ...], request: SentRequest, outcome: Outcome) -> None:
        for hook in reversed(hooks):
            hook.answered(request, outcome)

    async def _headers(self, call: RequestCall) -> list[tuple[str, str]]:
        headers = {
            "Accept": call.accept,
            "Accept-Encoding": "identity" if self._config.disable_compression or not call.buffered else "gzip",
        }
        if call.content_type:
            headers["Content-Type"] = call.content_type
        own: set[str] = set()
        if call.headers:
            # The caller's own headers take precedence, in any spelling: programs differ about a header that occurs twice.
            own = {name.lower() for name in call.headers}
            headers = {name: value for name, value in headers.items() if name.lower() not in own} | dict(call.headers)
        # With an Authorization header of the caller no plugin runs (client-go transport/round_trippers.go).
        if "authorization" not in own:
            headers |= await self._authenticator.headers()
        if "user-agent" not in own:
            headers["User-Agent"] = self._manners.user_agent
        return [*headers.items(), *self._impersonation]

    def _redirected(self, answer: ResponseHead, call: RequestCall) -> TransportError:
        location = without_secrets(answer.headers.get("Location", "")).partition("?")[0]
        return TransportError(
            f'{self._where}: HTTP status {answer.status} redirects to "{location}", which is not '
            f"followed; is server in {self._config.source} the API server's own address? ({call.description})"
        )

    def _refusal(self, answer: ResponseHead, content: bytes, call: RequestCall) -> ApiError:
        words = call.words
        if answer.status == 401:
            user = self._config.credentials
            fault = "there are no credentials" if user == Credentials(owner=user.owner) else "they are unknown or expired: renew them"
            words = f"{words}; credentials: {user.owner}: {fault}"
        elif answer.status == 400 and self._config.server.startswith("http://") and _PLAIN_TO_TLS.search(content):
            from kubeloop.transport.errors import secure_address

            words = f"{words}; {secure_address(self._config)}"
        if call.previous and call.previous != f"HTTP status {answer.status}":
            words = f"{words}; error from a previous attempt: {call.previous}"
        return error_of(answer.status, answer.headers, content, call.method, words)


def _with_previous(error: TransportError, call: RequestCall) -> TransportError:
    """Return the error with the error of the previous attempt appended to its message (behaviour K144)."""
    if not call.previous or call.previous == str(error):
        return error
    return type(error)(f"{error} - error from a previous attempt: {call.previous}")
