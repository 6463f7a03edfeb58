"""Options of authentication, named after kube-apiserver's flags: files, front proxies, issuers and keys of service account tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kubeloop.apiserver.authentication.request_header import CONVENTIONAL, RequestHeaders
from kubeloop.meta.errors import ConfigError
from kubeloop.pki import SigningKey, VerifyingKey, verifying_keys

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"

_HOUR: Final = 3600.0
_MOST: Final = 2.0**32


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """``issuers``: the first issues, all are believed. ``keys`` verify, ``signing`` signs. ``keys_at`` empty: at this server's own address.

    ``max_expiration`` in seconds; 0: as long as is asked for. ``extend``: tokens as kubelets ask for them for pods last a year, as
    Kubernetes does by default for clients that read their token only once.
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
        return self.issuers[0]

    @property
    def audiences(self) -> tuple[str, ...]:
        """Whom a token must be meant for to be accepted by this server."""
        return self.api_audiences or self.issuers

    @property
    def all_keys(self) -> tuple[VerifyingKey, ...]:
        """Each once."""
        return tuple({key.key_id: key for key in (*self.keys, self.signing.public)}.values())

    @classmethod
    def read(
        cls,
        *,
        own: SigningKey | None = None,
        issuers: Sequence[str] = (),
        key_files: Sequence[Path] = (),
        signing_file: Path | None = None,
        api_audiences: Sequence[str] = (),
        keys_at: str = "",
        max_expiration: float = 0.0,
        extend: bool = True,
    ) -> TokenSettings:
        """As the flags say. ``own`` signs where no file is named; None: a new key does.

        Raises:
            ConfigError: naming the flag or the file, and the way out.
        """
        chosen = tuple(issuers) or (ISSUER,)
        _check_issuers(chosen)
        if keys_at and urlsplit(keys_at).scheme != "https":
            raise ConfigError(f"--service-account-jwks-uri {keys_at}: not an https URL")
        if max_expiration and not _HOUR <= max_expiration <= _MOST:
            raise ConfigError("--service-account-max-token-expiration: between 1 hour and 2^32 seconds is wanted")
        keys = [key for file in key_files for key in _keys_in(file)]
        signing = _signing(signing_file, keys) if signing_file is not None else own or SigningKey.create()
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
        raise ConfigError(f"{flag} {issuers[0]}: not an https URL without query and fragment, which verifiers of tokens ask for")


def _keys_in(file: Path) -> list[VerifyingKey]:
    flag = "--service-account-key-file"
    found = verifying_keys(_read(file, flag))
    if not found:
        raise ConfigError(f"{flag} {file}: no RSA or EC key in it that can be read; PEM is wanted")
    return found


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
    except OSError as fault:
        raise ConfigError(f"{flag} {file}: {fault.strerror}") from None


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
