"""Who issues tokens of service accounts, for those who verify them: ``/.well-known/openid-configuration`` and ``/openid/v1/jwks``.

Nothing is signed here: the documents tell the issuer and the public keys that the server was started with.
Source: pkg/serviceaccount/openidmetadata.go; OpenID Connect Discovery 1.0; RFC 7517.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from kubeloop.apiserver import refusals
from kubeloop.apiserver.negotiation import check_route
from kubeloop.meta.errors import ConfigError
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request

JSONObject = dict[str, Any]

CONFIGURATION: Final = "/.well-known/openid-configuration"
KEYS: Final = "/openid/v1/jwks"
_JSON: Final = "application/json"
_KEY_SET: Final = "application/jwk-set+json"
#: Curve by its name in ``cryptography``: its name in RFC 7518, the algorithm, bytes of a coordinate.
_CURVES: Final = {"secp256r1": ("P-256", "ES256", 32), "secp384r1": ("P-384", "ES384", 48), "secp521r1": ("P-521", "ES512", 66)}


@dataclass(frozen=True, slots=True)
class Issuer:
    """``keys``: JSON Web Keys. ``keys_at`` empty: at this server's own address."""

    url: str
    keys: tuple[JSONObject, ...]
    keys_at: str = ""

    @classmethod
    def read(cls, url: str, files: Sequence[Path], keys_at: str = "", *, signing: Path | None = None) -> Issuer:
        """From PEM files, each with public or private RSA or EC keys or certificates. ``signing`` must be one of these keys.

        Raises:
            ConfigError: naming the flag or the file, and the way out.
        """
        if urlsplit(url).scheme != "https":
            raise ConfigError(f"--service-account-issuer {url}: not an https URL, which verifiers of tokens ask for")
        if keys_at and urlsplit(keys_at).scheme != "https":
            raise ConfigError(f"--service-account-jwks-uri {keys_at}: not an https URL")
        if not files:
            raise ConfigError("--service-account-issuer needs --service-account-key-file: PEM with the public keys that verify tokens")
        known = {key["kid"]: key for file in files for key in _keys_in(file, "--service-account-key-file")}
        flag = "--service-account-signing-key-file"
        if signing is not None and not any(key["kid"] in known for key in _keys_in(signing, flag)):
            raise ConfigError(f"{flag} {signing}: what it signs is verified by no key of --service-account-key-file; add its public key")
        return cls(url, tuple(known.values()), keys_at)


class IssuerDocuments:
    """Serves both documents of ``issuer``. ``address``: ``host:port`` of the server."""

    def __init__(self, issuer: Issuer, address: str) -> None:
        algorithms = sorted({key["alg"] for key in issuer.keys})
        configuration = {
            "issuer": issuer.url,
            "jwks_uri": issuer.keys_at or f"https://{address}{KEYS}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        }
        self._documents = {
            CONFIGURATION: (msgspec.json.encode(configuration), _JSON),
            KEYS: (msgspec.json.encode({"keys": issuer.keys}), _KEY_SET),
        }

    def answer(self, request: Request) -> Answer | None:
        """None for other paths.

        Raises:
            MethodNotAllowed, NotAcceptable
        """
        found = self._documents.get(request.path.rstrip("/"))
        if found is None:
            return None
        body, media_type = found
        if request.method != "GET":
            raise refusals.method_not_allowed()
        check_route(request.header("Accept"), (media_type,))
        return Answer(body=body, content_type=media_type, headers=[("Cache-Control", "public, max-age=3600")], verbatim=True)


def _keys_in(file: Path, flag: str) -> list[JSONObject]:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    try:
        text = file.read_bytes()
    except OSError as fault:
        raise ConfigError(f"{flag} {file}: {fault.strerror}") from None
    found = []
    for block in text.split(b"-----BEGIN ")[1:]:
        pem = b"-----BEGIN " + block
        kind = block.partition(b"-----")[0]
        try:
            if kind == b"CERTIFICATE":
                key: Any = x509.load_pem_x509_certificate(pem).public_key()
            elif kind.endswith(b"PRIVATE KEY"):
                key = serialization.load_pem_private_key(pem, None).public_key()
            else:
                key = serialization.load_pem_public_key(pem)
        except (ValueError, TypeError):
            continue
        known = _web_key(key)
        if known is not None:
            found.append(known)
    if not found:
        raise ConfigError(f"{flag} {file}: no RSA or EC key in it that can be read; PEM is wanted")
    return found


def _web_key(key: Any) -> JSONObject | None:
    """None for a kind of key that Kubernetes does not sign with."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    kid = _base64(hashlib.sha256(der).digest())
    if isinstance(key, rsa.RSAPublicKey):
        numbers = key.public_numbers()
        return {"use": "sig", "kty": "RSA", "kid": kid, "alg": "RS256", "n": _number(numbers.n), "e": _number(numbers.e)}
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
        curve, algorithm, size = _CURVES[key.curve.name]
        point = key.public_numbers()
        x, y = (_base64(one.to_bytes(size, "big")) for one in (point.x, point.y))
        return {"use": "sig", "kty": "EC", "kid": kid, "crv": curve, "alg": algorithm, "x": x, "y": y}
    return None


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
