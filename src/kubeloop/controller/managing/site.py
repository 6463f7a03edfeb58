"""Site: one listening address of a manager, and what it answers there."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Self, TypeAlias

from kubeloop.controller.managing.address import Address
from kubeloop.meta import ConfigError
from kubeloop.serving.answer import Answer, Reply
from kubeloop.serving.request import Request
from kubeloop.tasks import Supervisor, close_all
from kubeloop.timing import Clock
from kubeloop.transport import logger_with_context

if TYPE_CHECKING:
    from kubeloop.controller.managing.access import Access
    from kubeloop.controller.webhooks.certificates.source import CertificateSource, Serving
    from kubeloop.serving.listener import Listener

log = logger_with_context(__name__)

Route: TypeAlias = Callable[[Request], Awaitable[Answer | None]]
"""None: the path is somebody else's."""


class Site:
    """Serves ``routes`` at ``address`` while its block lasts; ``option`` is what messages call it. ``url`` once it has begun.

    Raises:
        ConfigError: from the block's begin: the address is taken or not ours, the certificate cannot be used, a package is missing.
    """

    def __init__(
        self,
        option: str,
        address: Address,
        routes: Sequence[Route],
        clock: Clock,
        *,
        certificate: CertificateSource | None = None,
        access: Access | None = None,
    ) -> None:
        self.option = option
        self.url = ""
        self._address = address
        self._routes = routes
        self._clock = clock
        self._certificate = certificate
        self._access = access
        self._listener: Listener | None = None
        self._context: ssl.SSLContext | None = None
        self.tasks = Supervisor(clock, log)

    async def __aenter__(self) -> Self:
        try:
            from kubeloop.serving.listener import Listener
        except ModuleNotFoundError as error:
            raise ConfigError(f'{self.option}: serving needs the package {error.name}: pip install "kubeloop[server]"') from None
        if self._certificate is not None:
            self._context = await self._secured(self._certificate)
        self._listener = Listener(self._answer, self._context, host=self._address.host, port=self._address.port)
        try:
            await self._listener.bind()
        except ConfigError as error:
            raise ConfigError(f"{self.option}={str(self._address)!r}: {error}") from None
        await self._listener.serve()
        scheme = "http" if self._context is None else "https"
        self.url = f"{scheme}://{Address(self._address.host or '127.0.0.1', self._listener.port)}"
        if (certificate := self._certificate) is not None:
            self.tasks.start(lambda: certificate.keep(self._changed), name=f"certificate-{self.option}")
        return self

    async def __aexit__(self, *_: object) -> None:
        steps = [] if self._listener is None else [self._listener.close]
        await close_all(self.tasks.stop, *steps)

    async def _secured(self, certificate: CertificateSource) -> ssl.SSLContext:
        from kubeloop.controller.webhooks.tls import server_tls

        context = server_tls(await certificate.open(None, self._clock))
        if self._access is not None and self._access.authorities:
            context.load_verify_locations(cadata=self._access.authorities.decode())
            # Who has none is told 401, in words, instead of a broken handshake.
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _changed(self, serving: Serving) -> None:
        from kubeloop.controller.webhooks.tls import change_certificate

        assert self._context is not None
        change_certificate(self._context, serving)

    async def _answer(self, request: Request) -> Reply:
        if self._access is not None:
            refused = await self._access.admit(request)
            if refused is not None:
                return refused
        for route in self._routes:
            answer = await route(request)
            if answer is not None:
                return answer
        return Answer(404, body=b"404 page not found\n", content_type="text/plain; charset=utf-8")
