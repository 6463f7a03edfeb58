"""Options of authentication, named after kube-apiserver's flags: files, front proxies, issuers and keys of service account tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kubeloop.endpoints.request_header import CONVENTIONAL, RequestHeaders
from kubeloop.meta.errors import ConfigError
from kubeloop.pki import SigningKey, VerifyingKey, verifying_keys

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"

_HOUR: Final = 3600.0
_MOST: Final = 2.0**32


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """Settings of service account tokens.

    Attributes:
        signing: The key that signs tokens.
        issuers: Accepted issuers; the first one issues.
        keys: More keys that verify tokens.
        api_audiences: Audiences of the server; empty: the issuers.
        keys_at: URL of the key set (--service-account-jwks-uri); empty: at the address of the server.
        max_expiration: Maximum seconds of validity; 0: no maximum.
        extend: Tokens that kubelets request for pods are valid for a year, as by default in Kubernetes. Clients that read their token only
            once need that.
    """

    signing: SigningKey = field(default_factory=SigningKey.create)
    issuers: tuple[str, ...] = (ISSUER,)
    keys: tuple[VerifyingKey, ...] = ()
    api_audiences: tuple[str, ...] = ()
    keys_at: str = ""
    max_expiration: float = 0.0
    extend: bool = True

    @property
    def issuer(self) -> str:
        """The issuer of new tokens."""
        return self.issuers[0]

    @property
    def audiences(self) -> tuple[str, ...]:
        """The audiences of the server, one of which an accepted token must have."""
        return self.api_audiences or self.issuers

    @property
    def all_keys(self) -> tuple[VerifyingKey, ...]:
        """The signing and verifying keys, without duplicates."""
        return tuple({key.key_id: key for key in (*self.keys, self.signing.public)}.values())

    @classmethod
    def read(
        cls,
        *,
        default_key: SigningKey | None = None,
        issuers: Sequence[str] = (),
        key_files: Sequence[Path] = (),
        signing_file: Path | None = None,
        api_audiences: Sequence[str] = (),
        keys_at: str = "",
        max_expiration: float = 0.0,
        extend: bool = True,
    ) -> TokenSettings:
        """Return the settings of kube-apiserver's flags.

        Args:
            default_key: Signs if there is no ``signing_file``; None: a new key.
            issuers: --service-account-issuer.
            key_files: --service-account-key-file.
            signing_file: --service-account-signing-key-file.
            api_audiences: --api-audiences.
            keys_at: --service-account-jwks-uri.
            max_expiration: --service-account-max-token-expiration, in seconds; 0: no maximum.
            extend: --service-account-extend-token-expiration.

        Returns:
            The settings.

        Raises:
            ConfigError: A flag or file is invalid. The message says how to correct it.
        """
        chosen = tuple(issuers) or (ISSUER,)
        _check_issuers(chosen)
        if keys_at and urlsplit(keys_at).scheme != "https":
            raise ConfigError(f"--service-account-jwks-uri {keys_at}: not an https URL")
        if max_expiration and not _HOUR <= max_expiration <= _MOST:
            raise ConfigError("--service-account-max-token-expiration: between 1 hour and 2^32 seconds is wanted")
        keys = [key for file in key_files for key in _keys_in(file)]
        signing = _signing(signing_file, keys) if signing_file is not None else default_key or SigningKey.create()
        return cls(signing, chosen, tuple(keys), tuple(api_audiences), keys_at, max_expiration, extend)


def _check_issuers(issuers: tuple[str, ...]) -> None:
    flag = "--service-account-issuer"
    for place, issuer in enumerate(issuers):
        if not issuer:
            raise ConfigError(f"{flag}: an empty issuer")
        if issuer in issuers[:place]:
            raise ConfigError(f"{flag} {issuer}: named twice")
    url = urlsplit(issuers[0])
    if url.scheme != "https" or url.query or url.fragment:
        raise ConfigError(f"{flag} {issuers[0]}: not an https URL without query and fragment, which verifiers of tokens require")


def _keys_in(file: Path) -> list[VerifyingKey]:
    flag = "--service-account-key-file"
    result = verifying_keys(_read(file, flag))
    if not result:
        raise ConfigError(f"{flag} {file}: no RSA or EC key in it that can be read; PEM is wanted")
    return result


def _signing(file: Path, keys: Sequence[VerifyingKey]) -> SigningKey:
    flag = "--service-account-signing-key-file"
    try:
        key = SigningKey.load(_read(file, flag))
    except (ValueError, TypeError):
        raise ConfigError(f"{flag} {file}: no RSA or EC private key in it that can be read; PEM without a password is wanted") from None
    if keys and all(one.key_id != key.public.key_id for one in keys):
        raise ConfigError(f"{flag} {file}: what it signs is verified by no key of --service-account-key-file; add its public key")
    return key


def _read(file: Path, flag: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{flag} {file}: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class AuthenticationOptions:
    """Options of authentication, named after kube-apiserver's flags. Changed files are read again, except for keys of tokens.

    Attributes:
        accounts: Settings of service account tokens; None: a new key signs them, so that tokens of an earlier server are invalid.
        token_file: Static tokens (--token-auth-file).
        client_ca: Authorities of client certificates (--client-ca-file).
        proxy_ca: Authorities of front proxies (--requestheader-client-ca-file).
        proxies: Headers in which front proxies send the user.
        anonymous: Serve requests without credentials (--anonymous-auth).
        tls_certificate: Certificate of the server; None: issued by its authority.
        tls_key: The key of this certificate.
    """

    accounts: TokenSettings | None = None
    token_file: Path | None = None
    client_ca: Path | None = None
    proxy_ca: Path | None = None
    proxies: RequestHeaders = CONVENTIONAL
    anonymous: bool = True
    tls_certificate: Path | None = None
    tls_key: Path | None = None
