"""Who this server is to the servers behind it: a certificate by which they believe what its headers say of users.

Source: Kubernetes documentation, "Configure the Aggregation Layer" (Kubernetes Apiserver Client Authentication).
"""

from __future__ import annotations

import ssl
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Final

from kubeloop.pki import CertificateAuthority, IssuedCertificate

#: The certificate's common name, which extension servers may ask for (--requestheader-allowed-names).
NAME: Final = "front-proxy-client"


class ProxyIdentity:
    """A client certificate for ``front-proxy-client`` and its authority, both created at the first access.

    The authority issues nothing else: whoever shows a certificate of it may speak for any user.
    """

    def __init__(self, authority: CertificateAuthority | None = None) -> None:
        self._given = authority

    @property
    def authority(self) -> bytes:
        """PEM, for extension servers to trust; public."""
        return self._authority.certificate

    @cached_property
    def certificate(self) -> IssuedCertificate:
        return self._authority.issue(NAME, client=True)

    def present(self, context: ssl.SSLContext) -> None:
        """Let ``context`` show the certificate. The key is in a file of mode 0600 while it is loaded: ssl reads nothing else."""
        own = self.certificate
        with tempfile.TemporaryDirectory(prefix="kubeloop-") as folder:
            path = Path(folder, "pair.pem")
            path.touch(mode=0o600)
            path.write_bytes(own.certificate + own.key)
            context.load_cert_chain(path)

    @cached_property
    def _authority(self) -> CertificateAuthority:
        return self._given or CertificateAuthority.create("kubeloop-front-proxy-ca")
