"""Certificates from files that somebody else renews: cert-manager's mounted Secret, or a folder that a test or an administrator fills."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

from kubeloop.client import Client
from kubeloop.controller.webhooks.certificates.source import Serving
from kubeloop.controller.webhooks.tls import check_pair
from kubeloop.meta import ConfigError
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import logger_with_context

log = logger_with_context("kubeloop.controller.webhooks")


class CertificateFiles:
    """Reads ``tls.crt``, ``tls.key`` and, if it is there, ``ca.crt`` of a folder, and again every ``period`` seconds.

    Guarantees
        A pair that does not fit together, as while files are being replaced, is passed over: the one before is served on, and it is logged
        once. The last that could be read is served as long as it takes, even if the files vanish.

    Other names: ``certificate``, ``key`` and ``authorities``, within the folder or absolute.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        certificate: str = "tls.crt",
        key: str = "tls.key",
        authorities: str = "ca.crt",
        period: float = 10.0,
    ) -> None:
        self._certificate = Path(folder, certificate)
        self._key = Path(folder, key)
        self._authorities = Path(folder, authorities)
        self._period = period
        self._clock: Clock = SystemClock()
        self._served: Serving | None = None
        self._told = ""

    async def open(self, client: Client | None, clock: Clock) -> Serving:  # noqa: ARG002 - files need no client
        self._clock = clock
        self._served = self._read()
        return self._served

    async def keep(self, changed: Callable[[Serving], None]) -> None:
        while True:
            await self._clock.sleep(self._period)
            try:
                found = self._read()
            except ConfigError as error:
                if self._told != str(error):
                    log.warning("%s; the certificate from before is served on", error)
                self._told = str(error)
                continue
            self._told = ""
            if found != self._served:
                self._served = found
                log.info("serving with the new certificate of %s", self._certificate)
                changed(found)

    def _read(self) -> Serving:
        try:
            pair = self._certificate.read_bytes(), self._key.read_bytes()
            authorities = self._authorities.read_bytes() if self._authorities.exists() else b""
        except OSError as error:
            raise ConfigError(f"cannot read {error.filename}: {error.strerror}; is the certificate's Secret mounted there?") from None
        found = Serving(*pair, authorities)
        try:
            check_pair(found)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"{self._certificate} and {self._key} are no certificate with its key: {error}") from None
        return found
