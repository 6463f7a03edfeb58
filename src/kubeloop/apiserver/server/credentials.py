"""Certificates that the server presents, and the kubeconfig that it writes for its clients."""

from __future__ import annotations

import ssl
import time
from base64 import b64encode
from collections.abc import Hashable, Sequence
from typing import Final

from kubeloop.apiserver.authentication.certificates import ClientAuthorities
from kubeloop.apiserver.authentication.options import AuthenticationOptions
from kubeloop.meta.errors import ConfigError
from kubeloop.pki import CertificateAuthority, IssuedCertificate
from kubeloop.pki.watched import WatchedFile
from kubeloop.serving.listener import RotatingContext, server_context

#: Server name (SNI) with which clients get the certificate of the server's authority even if flags name another one, as in kube-apiserver.
LOOPBACK_NAME: Final = "apiserver-loopback-client"
_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
_DAYS: Final = 365
#: Seconds after which the server issues its certificate again, long before it expires.
_RENEWED: Final = 90 * 24 * 3600


class ServingCertificates:
    """Builds TLS contexts. It builds new ones when a file changes or the certificate is due for renewal.

    Raises:
        ConfigError: The files of the flags contain no certificate with its key.
    """

    def __init__(
        self, authority: CertificateAuthority, addresses: Sequence[str], options: AuthenticationOptions, clients: ClientAuthorities
    ) -> None:
        """Issue the certificate and read the files of the flags.

        Args:
            authority: Issues the certificate of the server.
            addresses: Addresses for which the certificate is valid.
            options: Files with another certificate.
            clients: Authorities of client certificates.
        """
        self._authority = authority
        self._addresses = addresses
        self._clients = clients
        self._pair: tuple[WatchedFile, WatchedFile] | None = None
        if options.tls_certificate is not None and options.tls_key is not None:
            certificate = WatchedFile(options.tls_certificate, "--tls-cert-file")
            self._pair = certificate, WatchedFile(options.tls_key, "--tls-private-key-file")
        self._rotating = RotatingContext(self._make, self._mark)

    @property
    def context(self) -> ssl.SSLContext:
        """The TLS context for a listener. It stays current while the listener runs."""
        return self._rotating.context

    def _mark(self) -> Hashable:
        marks = tuple(one.mark() for one in self._pair) if self._pair is not None else ()
        return self._clients.refresh(), int(time.time() / _RENEWED), marks

    def _make(self) -> dict[str, ssl.SSLContext]:
        trusted = self._clients.all_pem
        names = (*_NAMES, LOOPBACK_NAME)
        own = self._authority.issue("kube-apiserver", dns_names=names, ip_addresses=self._addresses, server=True, days=_DAYS)
        made = server_context(own.certificate, own.key, trusted)
        if self._pair is None:
            return {"": made}
        certificate, key = self._pair
        try:
            requested = server_context(certificate.read() + b"\n", key.read(), trusted)
        except ssl.SSLError as error:
            reason = error.reason or str(error)
            raise ConfigError(f"{certificate.flag} {certificate.path} and {key.flag} {key.path} do not belong together: {reason}") from None
        return {"": requested, LOOPBACK_NAME: made}


_TEMPLATE = """\
apiVersion: v1
kind: Config
current-context: kubeloop
clusters:
- name: kubeloop
  cluster:
    server: {server}
    certificate-authority-data: {authority}{server_name}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: kubeloop
  context:
    cluster: kubeloop
    user: {user}
"""


def kubeconfig_text(
    server: str, authority: bytes, user: IssuedCertificate, name: str = "kubeloop-admin", *, server_name: str = ""
) -> bytes:
    """Return a kubeconfig as YAML with embedded certificates. It contains a private key: write it only with ``pki.files.write_secret``.

    Args:
        server: URL of the server.
        authority: The certificate that clients must trust, PEM.
        user: The client certificate with its key.
        name: Name of the user entry.
        server_name: TLS server name (SNI); empty: the address of the server.

    Returns:
        The file.
    """
    text = _TEMPLATE.format(
        server=server,
        authority=b64encode(authority).decode(),
        server_name=f"\n    tls-server-name: {server_name}" if server_name else "",
        user=name,
        certificate=b64encode(user.certificate).decode(),
        key=b64encode(user.key).decode(),
    )
    return text.encode()
