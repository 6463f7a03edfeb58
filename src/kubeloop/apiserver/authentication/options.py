"""What of authentication can be chosen when a server is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kubeloop.apiserver.authentication.request_header import CONVENTIONAL, RequestHeaders
from kubeloop.apiserver.authentication.service_accounts.settings import TokenSettings


@dataclass(frozen=True, slots=True)
class AuthenticationOptions:
    """kube-apiserver's flags of these names. Files are read again when they change, all but keys of tokens.

    ``accounts`` None: tokens of service accounts are signed by a new key, so that those of an earlier server are void.
    ``tls_certificate`` and ``tls_key`` None: the server's certificate is of its own authority.
    """

    accounts: TokenSettings | None = None
    token_file: Path | None = None
    client_ca: Path | None = None
    proxy_ca: Path | None = None
    proxies: RequestHeaders = CONVENTIONAL
    anonymous: bool = True
    tls_certificate: Path | None = None
    tls_key: Path | None = None
