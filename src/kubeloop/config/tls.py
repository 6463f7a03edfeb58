"""The TLS context of a cluster, rebuilt when its files change: certificates are short-lived and rotate.

Source: client-go transport/cert_rotation.go and ca_rotation.go, which check every 5 minutes and keep the old files if a new one is broken.
"""

from __future__ import annotations

import logging
import ssl
from collections import defaultdict
from pathlib import Path

import msgspec

from kubeloop.config.cluster import ClusterConfig
from kubeloop.config.credentials import Pem
from kubeloop.meta.errors import ConfigError
from kubeloop.timing import Clock

_LOG = logging.getLogger("kubeloop.config")

#: Seconds between two checks of the files; a check is three calls of stat(2).
CERTIFICATE_PERIOD = 1.0


class TlsSource:
    """Provides the TLS context for the new connections of one connection pool.

    Guarantees
        The same object is returned until something changes, so that a connection can be compared with the present context.
        A changed authority, client certificate or key is used from ``CERTIFICATE_PERIOD`` after it was written, a pair only when both
        belong together. While a file is missing, empty or broken, its previous content stays in use.
    """

    def __init__(self, config: ClusterConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._context: ssl.SSLContext | None = None
        self._certificate: tuple[bytes, bytes] | None = None
        self._seen: tuple[object, ...] = ()
        self._content: tuple[bytes, ...] = ()
        self._checked = 0.0
        self._told = ""
        self.reloads: defaultdict[tuple[str, str], int] = defaultdict(int)
        """Counts checks of the files, by result and reason, if the authority is a file (client-go's metric of CA reloads)."""

    def current(self, certificate: tuple[bytes, bytes] | None = None) -> ssl.SSLContext:
        """Return the context. ``certificate`` (PEM chain, PEM key) replaces the configured client certificate.

        Raises:
            ConfigError: A file cannot be read or contains no usable certificate or key, and there is no previous context.
        """
        now = self._clock.now()
        if self._context is None or certificate != self._certificate:
            self._make(certificate)
            self._checked = now
        elif now - self._checked >= CERTIFICATE_PERIOD:
            self._checked = now
            self._renew()
        assert self._context is not None
        return self._context

    def _make(self, certificate: tuple[bytes, bytes] | None) -> None:
        seen = self._signature()
        pinned, content = self._pinned()
        self._context = pinned.ssl_context(certificate)
        self._certificate, self._seen, self._content, self._told = certificate, seen, content, ""

    def _renew(self) -> None:
        seen = self._signature()
        if seen == self._seen:
            self._count("success", "unchanged")
            return
        try:
            pinned, content = self._pinned()
            if content != self._content:
                self._context = pinned.ssl_context(self._certificate)
                _LOG.info("%s: the certificate files changed; new connections use them", self._config.source)
            self._count("success", "unchanged" if content == self._content else "updated")
            self._seen, self._content, self._told = seen, content, ""
        except ConfigError as error:
            self._count("failure", "read_error" if isinstance(seen[0], int) else "ca_parse_error")
            if str(error) != self._told:
                self._told = str(error)
                _LOG.warning("keeping the previous certificates: %s", error)

    def _count(self, result: str, reason: str) -> None:
        if self._config.ca is not None and not self._config.ca.data:
            self.reloads[result, reason] += 1

    def _signature(self) -> tuple[object, ...]:
        """Return a value that changes whenever a file is written or replaced, including through the symbolic links that kubelets use."""
        result: list[object] = []
        for pem in self._files():
            try:
                status = (pem.path or Path()).stat()
                result.append((status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev))
            except OSError as error:
                result.append(error.errno)
        return tuple(result)

    def _pinned(self) -> tuple[ClusterConfig, tuple[bytes, ...]]:
        """Return the configuration with the present content of its files, each read once: no file can change between two reads."""
        read = {id(pem): pem.read() for pem in self._files()}

        def pin(pem: Pem | None) -> Pem | None:
            return Pem(data=read[id(pem)], field=f"{pem.field}: {pem.path}") if pem is not None and id(pem) in read else pem

        user = self._config.credentials
        credentials = msgspec.structs.replace(user, client_certificate=pin(user.client_certificate), client_key=pin(user.client_key))
        return msgspec.structs.replace(self._config, ca=pin(self._config.ca), credentials=credentials), tuple(read.values())

    def _files(self) -> list[Pem]:
        user = self._config.credentials
        return [pem for pem in (self._config.ca, user.client_certificate, user.client_key) if pem is not None and not pem.data]
