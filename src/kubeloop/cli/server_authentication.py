"""Flags of ``kubeloop server`` for authentication, with kube-apiserver's names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeloop.cli.durations import DurationParameter
from kubeloop.cli.flags import FILE, flag
from kubeloop.meta.errors import ConfigError

if TYPE_CHECKING:
    from kubeloop.apiserver.authentication.options import AuthenticationOptions
    from kubeloop.pki import SigningKey

_PROXY = "Request headers of front proxies for the"


@dataclass(frozen=True, slots=True)
class AuthenticationFlags:
    """Credentials that the server accepts; texts of several values are separated by commas."""

    token_auth_file: Path | None = flag(type=FILE, help='Bearer tokens: CSV lines token,user,uid,"group1,group2".')
    anonymous_auth: bool = flag(
        True,
        type=click.BOOL,
        show_default=True,
        help="Accept requests without credentials as system:anonymous; false: answer them with 401.",
    )
    client_ca_file: Path | None = flag(type=FILE, help="Authorities of client certificates besides the server's own, PEM.")
    tls_cert_file: Path | None = flag(type=FILE, help="The server's certificate, PEM. Default: one of its own authority.")
    tls_private_key_file: Path | None = flag(type=FILE, help="Key of --tls-cert-file, PEM.")
    service_account_issuer: tuple[str, ...] = flag(
        (),
        metavar="URL",
        help="Issuer of service account tokens; of several, the first issues and all are accepted. "
        "Default: https://kubernetes.default.svc.cluster.local.",
    )
    service_account_key_file: tuple[Path, ...] = flag(
        (), type=FILE, help="Keys that verify service account tokens besides the signing key, PEM; may be repeated."
    )
    service_account_signing_key_file: Path | None = flag(
        type=FILE, help="Key that signs service account tokens, PEM. Default: sa.key in --cert-dir, made if it is missing."
    )
    service_account_jwks_uri: str = flag(
        "", metavar="URL", help="Address of the keys for verifiers. Default: /openid/v1/jwks at this server."
    )
    service_account_max_token_expiration: float | None = flag(
        type=DurationParameter(), help="Longest lifetime of a token in seconds (or as in 24h). Default: no limit."
    )
    service_account_extend_token_expiration: bool = flag(
        True,
        type=click.BOOL,
        show_default=True,
        help="Give tokens that kubelets request a lifetime of a year, for programs that read their token only once.",
    )
    api_audiences: tuple[str, ...] = flag(
        (), metavar="NAMES", help="Names of this server, separated by commas: a token must be meant for one of them. Default: the issuers."
    )
    requestheader_client_ca_file: Path | None = flag(
        type=FILE, help="Authority of front proxies' certificates, PEM. Default: no front proxies."
    )
    requestheader_allowed_names: tuple[str, ...] = flag((), metavar="NAMES", help="Common names of front proxies. Default: all.")
    requestheader_username_headers: tuple[str, ...] = flag((), metavar="HEADERS", help=f"{_PROXY} user name.")
    requestheader_uid_headers: tuple[str, ...] = flag((), metavar="HEADERS", help=f"{_PROXY} user's UID.")
    requestheader_group_headers: tuple[str, ...] = flag((), metavar="HEADERS", help=f"{_PROXY} user's groups.")
    requestheader_extra_headers_prefix: tuple[str, ...] = flag((), metavar="PREFIXES", help=f"{_PROXY} user's extra values, by prefix.")

    def options(self, folder: Path | None) -> AuthenticationOptions:
        """Return the server's options.

        ``folder`` contains the signing key if no flag names one; None: the server makes a new key.

        Raises:
            ConfigError: The text names the flag or the file, and the remedy.
        """
        from kubeloop.apiserver.authentication.options import AuthenticationOptions, TokenSettings
        from kubeloop.apiserver.authentication.request_header import RequestHeaders

        if (self.tls_cert_file is None) != (self.tls_private_key_file is None):
            raise ConfigError("--tls-cert-file and --tls-private-key-file belong together: name both or none")
        accounts = TokenSettings.read(
            own=self._own_key(folder),
            issuers=self.service_account_issuer,
            key_files=self.service_account_key_file,
            signing_file=self.service_account_signing_key_file,
            api_audiences=_split(self.api_audiences),
            keys_at=self.service_account_jwks_uri,
            max_expiration=self.service_account_max_token_expiration or 0.0,
            extend=self.service_account_extend_token_expiration,
        )
        proxies = RequestHeaders(
            _split(self.requestheader_username_headers),
            _split(self.requestheader_uid_headers),
            _split(self.requestheader_group_headers),
            _split(self.requestheader_extra_headers_prefix),
            _split(self.requestheader_allowed_names),
        )
        proxies.check()
        return AuthenticationOptions(
            accounts,
            self.token_auth_file,
            self.client_ca_file,
            self.requestheader_client_ca_file,
            proxies,
            self.anonymous_auth,
            self.tls_cert_file,
            self.tls_private_key_file,
        )

    def _own_key(self, folder: Path | None) -> SigningKey | None:
        if folder is None or self.service_account_signing_key_file is not None:
            return None
        from kubeloop.pki.files import kept_signing_key

        return kept_signing_key(folder)


def _split(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one for value in values for one in value.split(",") if value)
