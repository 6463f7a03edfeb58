"""Authentication flags of ``kubeloop server``, named as kube-apiserver's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubeloop.cli.durations import DurationParameter
from kubeloop.meta.errors import ConfigError

if TYPE_CHECKING:
    from kubeloop.apiserver.authentication.options import AuthenticationOptions
    from kubeloop.pki import SigningKey

_FILE = click.Path(dir_okay=False, path_type=Path)
_PROXY = "Headers in which a front proxy says"


@dataclass(frozen=True, slots=True)
class AuthenticationFlags:
    """The flags' values; texts with several values are separated by commas."""

    token_auth_file: Path | None
    anonymous_auth: bool
    client_ca_file: Path | None
    tls_cert_file: Path | None
    tls_private_key_file: Path | None
    service_account_issuer: tuple[str, ...]
    service_account_key_file: tuple[Path, ...]
    service_account_signing_key_file: Path | None
    service_account_jwks_uri: str
    service_account_max_token_expiration: float | None
    service_account_extend_token_expiration: bool
    api_audiences: tuple[str, ...]
    requestheader_client_ca_file: Path | None
    requestheader_allowed_names: tuple[str, ...]
    requestheader_username_headers: tuple[str, ...]
    requestheader_uid_headers: tuple[str, ...]
    requestheader_group_headers: tuple[str, ...]
    requestheader_extra_headers_prefix: tuple[str, ...]

    def options(self, folder: Path | None) -> AuthenticationOptions:
        """Convert to options. ``folder`` contains the signing key if no flag names one; None: a new key is made.

        Raises:
            ConfigError: a flag or file is wrong; the text names it and the fix.
        """
        from kubeloop.apiserver.authentication.options import AuthenticationOptions
        from kubeloop.apiserver.authentication.request_header import RequestHeaders
        from kubeloop.apiserver.authentication.service_accounts.settings import TokenSettings

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


_OPTIONS = (
    click.option("--token-auth-file", type=_FILE, help='Bearer tokens: CSV lines token,user,uid,"group1,group2".'),
    click.option(
        "--anonymous-auth",
        type=bool,
        default=True,
        show_default=True,
        help="Requests without credentials are from system:anonymous; false: they are answered with 401.",
    ),
    click.option("--client-ca-file", type=_FILE, help="Who else signs client certificates, besides the server's own authority, PEM."),
    click.option("--tls-cert-file", type=_FILE, help="The server's certificate, PEM. Default: signed by the server's new authority."),
    click.option("--tls-private-key-file", type=_FILE, help="Its key, PEM."),
    click.option(
        "--service-account-issuer",
        multiple=True,
        metavar="URL",
        help="Who issues tokens of service accounts; of several, the first issues and all are believed. "
        "Default: https://kubernetes.default.svc.cluster.local.",
    ),
    click.option(
        "--service-account-key-file",
        type=_FILE,
        multiple=True,
        help="Keys that verify such tokens besides the signing key, PEM; may be repeated.",
    ),
    click.option(
        "--service-account-signing-key-file",
        type=_FILE,
        help="The key that signs them, PEM. Default: sa.key in --cert-dir, made when it is not there.",
    ),
    click.option(
        "--service-account-jwks-uri",
        default="",
        metavar="URL",
        help="Where verifiers find the keys. Default: /openid/v1/jwks at this server.",
    ),
    click.option(
        "--service-account-max-token-expiration",
        type=DurationParameter(),
        help="Seconds (or as in 24h) that a token lasts at most. Default: no limit.",
    ),
    click.option(
        "--service-account-extend-token-expiration",
        type=bool,
        default=True,
        show_default=True,
        help="Tokens that kubelets ask for last a year, for programs that read theirs only once.",
    ),
    click.option(
        "--api-audiences",
        multiple=True,
        metavar="NAMES",
        help="Names of this server, separated by commas: a token is meant for one of them. Default: the issuers.",
    ),
    click.option(
        "--requestheader-client-ca-file", type=_FILE, help="Who signs certificates of front proxies, PEM. Default: there are none."
    ),
    click.option("--requestheader-allowed-names", multiple=True, metavar="NAMES", help="Common names of front proxies. Default: all."),
    click.option("--requestheader-username-headers", multiple=True, metavar="HEADERS", help=f"{_PROXY} the user."),
    click.option("--requestheader-uid-headers", multiple=True, metavar="HEADERS", help=f"{_PROXY} his uid."),
    click.option("--requestheader-group-headers", multiple=True, metavar="HEADERS", help=f"{_PROXY} his groups."),
    click.option("--requestheader-extra-headers-prefix", multiple=True, metavar="PREFIXES", help="Beginnings of such headers of the rest."),
)
_NAMES = tuple(AuthenticationFlags.__slots__)


def authentication_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to ``command``, which gets their values as the argument ``authentication``."""

    @functools.wraps(command)
    def collected(*args: Any, **options: Any) -> None:
        flags = AuthenticationFlags(**{name: options.pop(name) for name in _NAMES})
        command(*args, authentication=flags, **options)

    for option in reversed(_OPTIONS):
        collected = option(collected)
    return collected
