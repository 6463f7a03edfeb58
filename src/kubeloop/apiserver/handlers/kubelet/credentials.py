"""The server's client certificate for kubelets, and the authority of the kubelets' certificates (``--kubelet-*`` flags).

The server presents no certificate to other backends of proxied requests and does not verify theirs (Kubernetes documentation, "Accessing
services").
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kubeloop.meta.errors import ConfigError
from kubeloop.meta.tls import client_tls


@dataclass(frozen=True)
class KubeletCredentials:
    """The files of ``--kubelet-client-certificate``, ``--kubelet-client-key`` and ``--kubelet-certificate-authority``.

    Without ``authority`` the kubelets' certificates are not verified. Files are read when the first kubelet is called.

    Raises
        ConfigError: from ``context``, a file that cannot be used.
    """

    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None

    def check(self) -> None:
        """Read the files, so that a server with an unusable file fails at its start.

        Raises:
            ConfigError: A file is missing or broken.
        """
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("--kubelet-client-certificate and --kubelet-client-key need each other")
        if self.certificate is not None or self.authority is not None:
            _ = self.context

    @cached_property
    def context(self) -> ssl.SSLContext:
        """Return the TLS context for kubelets. It verifies their certificates if ``authority`` is set."""
        return self._context(self.authority)

    @cached_property
    def unverified(self) -> ssl.SSLContext:
        """Return the TLS context for logs with insecureSkipTLSVerifyBackend, which does not verify the kubelet's certificate."""
        return self._context(None)

    @cached_property
    def proxied(self) -> ssl.SSLContext:
        """Return the TLS context for pods, services and other ports of nodes, without client certificate and without verification."""
        return KubeletCredentials().unverified

    def _context(self, authority: Path | None) -> ssl.SSLContext:
        context = client_tls()
        try:
            if authority is None:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            else:
                context.load_verify_locations(authority)
        except OSError as fault:
            raise ConfigError(f"--kubelet-certificate-authority {authority}: {fault.strerror or fault}") from None
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key, password="")  # without a password, OpenSSL asks for one at the terminal
            except OSError as fault:
                named = f"--kubelet-client-certificate {self.certificate}, --kubelet-client-key {self.key}"
                raise ConfigError(f"{named}: {fault.strerror or fault}") from None
        return context
