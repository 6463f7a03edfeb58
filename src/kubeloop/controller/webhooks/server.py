"""WebhookServer: serves hooks over TLS, with certificates that change while it runs, and registers both with API servers."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

from kubeloop.client import Client
from kubeloop.controller.webhooks.configurations import Url
from kubeloop.controller.webhooks.conversion import CONVERT_PATH
from kubeloop.controller.webhooks.declared import DEFAULT_TIMEOUT
from kubeloop.controller.webhooks.hooks import Webhooks
from kubeloop.controller.webhooks.registration import Inject, Register, Registrar, injected, registered
from kubeloop.controller.webhooks.request import ReviewMalformed
from kubeloop.controller.webhooks.session import SESSION, end_session
from kubeloop.controller.webhooks.tls import CertificateSource, ServingCertificate, change_certificate, server_tls
from kubeloop.http1.errors import BodyMalformed, BodyTooLarge
from kubeloop.meta import ApiError, ConfigError, KubeloopError, TransportError, UntrustedCertificate
from kubeloop.meta.repr import counted
from kubeloop.serving.answer import Answer
from kubeloop.serving.listener import Listener
from kubeloop.serving.negotiation import content_media_type
from kubeloop.serving.request import Request
from kubeloop.tasks import Supervisor, close_all
from kubeloop.timing import Backoff, Clock, SystemClock, TimeLimit
from kubeloop.transport import logger_with_context

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_LOG = logger_with_context("kubeloop.controller.webhooks")

T = TypeVar("T")

#: First and longest delay between two attempts, in seconds.
_FIRST: Final = 1.0
_MOST: Final = 10.0


async def retry_until_available(description: str, attempt: Callable[[], Awaitable[T]], clock: Clock, seconds: float) -> T:
    """Return the result of ``attempt``, which is repeated and logged while the API server cannot be reached or is busy (429, 5xx).

    Args:
        description: The attempt, for logs.
        attempt: Sends the requests.
        clock: Clock of the delays.
        seconds: Time limit.

    Raises:
        KubeloopError: the last error after ``seconds``; a permanent error, such as Forbidden, immediately.
    """
    end = clock.now() + seconds
    backoff = Backoff(_FIRST, cap=_MOST, clock=clock)
    while True:
        try:
            return await attempt()
        except (TransportError, ApiError) as error:
            pause = backoff.next()
            if not _passes(error) or clock.now() + pause > end:
                raise
            _LOG.warning("%s: %s; retrying in %.1f s", description, error, pause)
        await clock.sleep(pause)


def _passes(error: KubeloopError) -> bool:
    if isinstance(error, ApiError):
        code = error.status.code or type(error).code or 0
        return code == 429 or code >= 500
    return not isinstance(error, UntrustedCertificate)


# Reviews over HTTP: checks path, size and media type of requests; the hooks do the rest.
#
# Source: k8s.io/apiserver pkg/util/webhook (one POST of JSON, ``?timeout=``); limits as controller-runtime's pkg/webhook/admission/http.go.


#: Bytes of an AdmissionReview, which holds an object twice; and of a ConversionReview, which may hold a whole list.
_MOST_REVIEWED: Final = 7 * 1024 * 1024
_MOST_CONVERTED: Final = 64 * 1024 * 1024
#: Share of a server's timeout for the hook, so that the response arrives in time.
_IN_TIME: Final = 0.95
_LONGEST: Final = 30.0
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{0,9})?)(h|ms|m|s)")
#: Maximum length of a duration that is parsed; Go writes at most "2562047h47m16.854775807s".
_LONGEST_DURATION: Final = 30
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class Observer(Protocol):
    """Counts requests, by path."""

    def begun(self, path: str) -> None: ...

    def ended(self, path: str, code: int, seconds: float, *, panic: bool) -> None:
        """Record a response.

        Args:
            path: Path of the webhook.
            code: HTTP status.
            seconds: Duration.
            panic: The hook raised an unexpected error.
        """


class Endpoint:
    """Answers the requests of a listener.

    The status is 404 for a path without a hook, 405 for methods other than POST, 415 for media types other than JSON, 413 for too long a
    body, 400 for a malformed review; otherwise 200 with a review, even if the hook failed.
    """

    def __init__(self, hooks: Webhooks, observer: Observer | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._hooks = hooks
        self._observer = observer
        self._now = now

    async def __call__(self, request: Request) -> Answer:
        path = request.path
        if path not in self._hooks.paths:
            return _text(404, f"no webhook is served at {path}")
        if self._observer is None:
            return (await self._answer(request))[0]
        started = self._now()
        self._observer.begun(path)
        code, panic = 499, False  # nginx's code for a client that closed the connection
        try:
            answer, panic = await self._answer(request)
            code = answer.status
        finally:
            self._observer.ended(path, code, self._now() - started, panic=panic)
        return answer

    async def _answer(self, request: Request) -> tuple[Answer, bool]:
        if request.method != "POST":
            refused = _text(405, "webhooks accept only POST")
            refused.headers.append(("Allow", "POST"))
            return refused, False
        value = request.header("Content-Type")
        if content_media_type(value) != "application/json":
            return _text(415, f'a review is application/json, not "{value}"'), False
        limit = _MOST_CONVERTED if request.path == CONVERT_PATH else _MOST_REVIEWED
        try:
            body = await request.read_body(limit)
            answered = await self._hooks.answer(request.path, body, timeout=_timeout(request.parameter("timeout")))
        except BodyTooLarge:
            return _text(413, f"the review is longer than {limit} bytes"), False
        except (BodyMalformed, ReviewMalformed) as error:
            return _text(400, str(error)), False
        return Answer(200, body=answered.body, content_type="application/json"), answered.panic


def _timeout(value: str) -> float:
    """Return the seconds for the hook, from a duration in Go's format (``10s``)."""
    parts = _DURATION.findall(value[:_LONGEST_DURATION])
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not seconds or "".join(number + unit for number, unit in parts) != value:
        seconds = DEFAULT_TIMEOUT
    return min(seconds, _LONGEST) * _IN_TIME


def _text(status: int, text: str) -> Answer:
    return Answer(status, body=f"{text}\n".encode(), content_type="text/plain; charset=utf-8")


#: Seconds for which the end waits for API servers to drop a temporary registration.
_END_TIMEOUT = 5.0


class WebhookServer:
    """Serves admission and conversion webhooks within ``async with``.

    Guarantees
        The server waits up to ``start_timeout`` seconds for an API server that is not reachable yet, and logs that.
        It answers before it is registered with API servers and, as one of the ``servers`` of a manager, before any cache starts, so that an
        informer can list a kind that this server converts. It needs no leader: every replica answers.
        A new certificate applies to new connections; open ones continue. Failures of certificates or registration after the start are
        logged and retried, while the hooks continue to answer.
        At the end a temporary registration (``Register``) is removed; then open requests are finished, for up to two seconds.

    Args:
        hooks: The hooks.
        certificates: Source of the certificate: ``CertificateFiles`` or ``ManagedCertificates``.
        client: Required for ``register``, ``inject`` and ``ManagedCertificates``; the server does not close it.
        host: Address to listen on; in a pod ``0.0.0.0``.
        port: Port to listen on. 0: any free port.
        register: Apply configurations. None: other programs apply them.
        inject: Fill in the CA bundles of configurations that other programs apply.
        client_authorities: Certificate authorities, PEM. API servers must present a certificate that one of them signed. Empty: any client.
        registry: Registry of the metrics. None: prometheus_client's default one.
        start_timeout: Seconds to wait for the API server.
        clock: Clock of delays. None: the system's monotonic clock.

    Raises:
        DeclarationError: no hook is declared, or there is no converter to a version.
        ConfigError: the address is in use; no certificate is usable; or an option requires another option.
        ApiError, TransportError: certificates or configurations could not be read or applied.

    Example:
        >>> from kubeloop.controller.webhooks import ManagedCertificates, Register, Service
        >>> hooks = Webhooks()
        >>> service = Service("ops", "foo-webhooks")
        >>> certificates = ManagedCertificates("foo-webhooks", "ops", service.dns_names)
        >>> server = WebhookServer(hooks, certificates, client=client, host="0.0.0.0", register=Register("foo", service))
        >>> manager = Manager(client, servers=[server])
    """

    # Behaviour S219.

    def __init__(
        self,
        hooks: Webhooks,
        certificates: CertificateSource,
        *,
        client: Client | None = None,
        host: str = "127.0.0.1",
        port: int = 9443,
        register: Register | None = None,
        inject: Inject | None = None,
        client_authorities: bytes = b"",
        registry: CollectorRegistry | None = None,
        start_timeout: float = 120.0,
        clock: Clock | None = None,
    ) -> None:
        if (register or inject) and client is None:
            raise ConfigError("to register webhooks, or to inject their CA bundle, the webhook server needs client=...")
        self._hooks = hooks
        self._certificates = certificates
        self._client = client
        self._host = host
        self._port = port
        self._register = register
        self._inject = inject
        self._client_authorities = client_authorities
        self._registry = registry
        self._start_timeout = start_timeout
        self._clock: Clock = clock or SystemClock()
        self._context: ssl.SSLContext | None = None
        self._listener: Listener | None = None
        self._registrar: Registrar | None = None
        self._serving: ServingCertificate | None = None
        self._session = ""
        self.tasks = Supervisor(self._clock, _LOG)

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self._close()

    @property
    def url(self) -> str:
        """Base URL ``https://HOST:PORT`` while the server runs."""
        return self._started.url

    @property
    def serving(self) -> ServingCertificate:
        """The certificate for new connections."""
        if self._serving is None:
            raise ConfigError(_NOT_STARTED)
        return self._serving

    def check(self) -> None:
        """Check readiness: raise an error unless the server responds.

        Raises:
            ConfigError: the server was not started, or has ended.
            KubeloopError: its certificate or registration cannot be maintained at present.
        """
        _ = self._started
        for name in self.tasks.failures:
            if not self.tasks.healthy(name):
                raise KubeloopError(f"{name} failed, retrying; the log has the reason")

    @property
    def _started(self) -> Listener:
        if self._listener is None:
            raise ConfigError(_NOT_STARTED)
        return self._listener

    async def _start(self) -> None:
        from kubeloop.controller.metrics import webhook_metrics

        if self._listener is not None:
            raise ConfigError("the webhook server was started already")
        self._hooks.check()
        self._serving = await self._patiently("the webhook certificates", lambda: self._certificates.open(self._client, self._clock))
        self._context = server_tls(self._serving, self._client_authorities)
        endpoint = Endpoint(self._hooks, webhook_metrics(self._registry), self._clock.now)
        listener = Listener(endpoint, self._context, host=self._host, port=self._port)
        await listener.bind()
        self._listener = listener
        await listener.serve()
        _LOG.info("serving %s at %s", counted(len(self._hooks.paths), "webhook"), listener.url)
        _LOG.debug("paths of the webhooks: %s", ", ".join(self._hooks.paths))
        self.tasks.start(lambda: self._certificates.watch(self._changed), name="webhook-certificates")
        if self._client is not None and (self._register or self._inject):
            await self._tell(self._client, listener, self._serving)

    async def _tell(self, client: Client, listener: Listener, serving: ServingCertificate) -> None:
        targets = injected(self._inject) if self._inject else []
        if self._register:
            place, temporary = self._register.place or Url(listener.url), self._register.is_temporary
            targets += registered(self._hooks, self._register.name, place, temporary=temporary)
            if temporary:
                name = self._register.name
                # A run that crashed may have left configurations for webhooks that no longer exist.
                await self._patiently("the end of an earlier registration", lambda: end_session(client, name))
                self._session = name
        self._registrar = Registrar(client, self._clock, targets, serving.authorities)
        await self._patiently("the registration of webhooks", self._registrar.apply)
        self.tasks.start(self._registrar.keep, name="webhook-registration")

    async def _patiently(self, description: str, attempt: Callable[[], Awaitable[T]]) -> T:
        return await retry_until_available(description, attempt, self._clock, self._start_timeout)

    def _changed(self, serving: ServingCertificate) -> None:
        assert self._context is not None
        # API servers that get the new authorities first trust the next certificate, and the present one, which an old authority signed.
        if self._registrar is not None:
            self._registrar.use(serving.authorities)
        change_certificate(self._context, serving)
        self._serving = serving

    async def _close(self) -> None:
        # The session ends while the listener still answers, so that no write fails meanwhile.
        listener, self._listener = self._listener, None
        steps = [] if listener is None else [listener.close]
        await close_all(self.tasks.stop, self._end_session, *steps)

    async def _end_session(self) -> None:
        """Delete the temporary configurations that this server registered."""
        session, self._session = self._session, ""
        if not session or self._client is None:
            return
        try:
            async with TimeLimit(self._clock, _END_TIMEOUT):
                await end_session(self._client, session)
        except (KubeloopError, TimeoutError) as error:
            _LOG.warning(
                "the webhook registration %s remains, and API servers refuse writes because of it: %s. Start the program again, or run: "
                "kubectl delete validatingwebhookconfigurations,mutatingwebhookconfigurations -l %s=%s",
                session,
                str(error) or "no answer in time",
                SESSION,
                session,
            )


_NOT_STARTED = "the webhook server does not serve: enter it with async with, or give it to Manager(servers=[...])"
