"""The certificate authority of a tap, and a TLS context for each name that a client wants to reach."""

from __future__ import annotations

import ssl
from ipaddress import ip_address
from pathlib import Path

from kubeloop.meta.errors import ConfigError
from kubeloop.meta.tls import load_pair, server_tls

#: Days of validity: a tap is short-lived, and nothing else should trust its authority for long.
_DAYS = 30.0


class TapCertificates:
    """Issues server certificates on demand. The authority's key exists in memory only.

    Its contexts never request a client certificate: TLS cannot forward one, so that a client must not believe it was used.

    >>> certificates = TapCertificates()
    >>> context = certificates.context("127.0.0.1")
    """

    def __init__(self, keylog: Path | None = None) -> None:
        """Create an authority. ``keylog`` is a file for the TLS secrets of the clients' connections; None: none.

        Raises:
            ConfigError: The package cryptography is missing.
        """
        try:
            from kubeloop.pki.authority import CertificateAuthority
        except ModuleNotFoundError as error:
            raise ConfigError(f"kubeloop tap needs {error.name}, which is not installed: pip install 'kubeloop[server]'") from None
        self._authority = CertificateAuthority.create("kubeloop tap", days=_DAYS)
        self._keylog = keylog
        self._contexts: dict[str, ssl.SSLContext] = {}

    @property
    def authority(self) -> bytes:
        """The certificate that clients must trust, PEM."""
        return self._authority.certificate

    def context(self, name: str) -> ssl.SSLContext:
        """Return the context of a server name or address. A client that names another server in its handshake gets that one's certificate.

        Raises:
            ValueError: No certificate can have this name.
        """
        if name not in self._contexts:
            self._contexts[name] = self._make(name)
        return self._contexts[name]

    def _make(self, name: str) -> ssl.SSLContext:
        dns_names, addresses = ([], [name]) if _is_address(name) else ([name], [])
        issued = self._authority.issue(name[:64], dns_names=dns_names, ip_addresses=addresses, server=True, days=_DAYS)
        context = server_tls()
        load_pair(context, issued.certificate + self._authority.certificate, issued.key)
        context.set_alpn_protocols(["http/1.1"])
        context.sni_callback = self._choose
        if self._keylog is not None:
            context.keylog_filename = str(self._keylog)
        return context

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        if name:
            try:
                connection.context = self.context(name)
            except ValueError:
                return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        return None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
