"""Keys that sign JSON Web Tokens, and keys that verify them: RSA and EC, named as Kubernetes names them.

Source: RFC 7515, RFC 7517, RFC 7518; k8s.io/kubernetes pkg/serviceaccount/jwt.go (key ids, algorithms).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from kubeloop.types import JSONObject

#: Name of a curve in ``cryptography`` -> its name in RFC 7518, the algorithm, and the bytes of a coordinate.
_CURVES: Final = {"secp256r1": ("P-256", "ES256", 32), "secp384r1": ("P-384", "ES384", 48), "secp521r1": ("P-521", "ES512", 66)}
#: Algorithms accepted for an RSA key. Never a symmetric one: a public key is no secret.
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_PEM: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)

_Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
_Public = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


class SignatureInvalid(Exception):
    """The token was not signed with this key, or with an algorithm that does not belong to the key."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key. ``key_id`` is the hash of the key; ``algorithm`` is the one with which ``SigningKey`` signs tokens.

    >>> key = SigningKey.create()
    >>> verifying_key = verifying_keys(key.pem)[0]
    >>> verifying_key.verify(key.sign({"sub": "jane"}))
    b'{"sub":"jane"}'
    """

    key: _Public
    key_id: str
    algorithm: str

    @classmethod
    def from_key(cls, key: Any) -> VerifyingKey:
        """Wrap a public key. Raises ValueError for a kind of key or a curve that Kubernetes does not sign with."""
        if isinstance(key, rsa.RSAPublicKey):
            algorithm = "RS256"
        elif isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
            algorithm = _CURVES[key.curve.name][1]
        else:
            raise ValueError("neither an RSA key nor an EC key of curve P-256, P-384 or P-521")
        der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return cls(key, _base64(hashlib.sha256(der).digest()), algorithm)

    def verify(self, token: str) -> bytes:
        """Return the payload of a token in compact form, after checking its signature.

        Raises:
            SignatureInvalid: the signature does not fit.
        """
        from jwt import PyJWS, PyJWTError

        algorithms = _RSA if isinstance(self.key, rsa.RSAPublicKey) else (self.algorithm,)
        try:
            payload: bytes = PyJWS().decode_complete(token, self.key, algorithms=algorithms)["payload"]
        except (PyJWTError, ValueError, RecursionError) as fault:
            raise SignatureInvalid(str(fault)) from None
        return payload

    def web_key(self) -> JSONObject:
        """Return the key as a JSON Web Key."""
        known: JSONObject = {"use": "sig", "kty": "RSA", "kid": self.key_id, "alg": self.algorithm}
        if isinstance(self.key, rsa.RSAPublicKey):
            numbers = self.key.public_numbers()
            return known | {"n": _number(numbers.n), "e": _number(numbers.e)}
        curve, _, size = _CURVES[self.key.curve.name]
        point = self.key.public_numbers()
        x, y = (_base64(one.to_bytes(size, "big")) for one in (point.x, point.y))
        return known | {"kty": "EC", "crv": curve, "x": x, "y": y}


class SigningKey:
    """A private key that signs JSON Web Tokens. ``repr`` does not show the key.

    >>> key = SigningKey.create()
    >>> token = key.sign({"sub": "jane"})
    >>> key.public.verify(token)
    b'{"sub":"jane"}'
    """

    def __init__(self, key: _Private) -> None:
        self._key = key
        self.public = VerifyingKey.from_key(key.public_key())

    def __repr__(self) -> str:
        return f"SigningKey({self.public.algorithm}, key hidden)"

    @classmethod
    def create(cls) -> SigningKey:
        """Return a new EC P-256 key."""
        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def load(cls, pem: bytes) -> SigningKey:
        """Load the first private key in PEM.

        Raises:
            ValueError: no readable key is in the text, or Kubernetes does not sign with keys of its kind.
        """
        for found in _PEM.finditer(pem):
            if found[1].endswith(b"PRIVATE KEY"):
                key = serialization.load_pem_private_key(found[0], None)
                if not isinstance(key, _Private):
                    break
                return cls(key)
        raise ValueError("no RSA or EC private key in it")

    @property
    def pem(self) -> bytes:
        """Return the key as PEM, unencrypted: store it only in files of mode 0600."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a signed token in compact form with the given claims."""
        from jwt import PyJWS

        headers = {"kid": self.public.key_id, "typ": None}
        return PyJWS().encode(msgspec.json.encode(claims, order="sorted"), self._key, self.public.algorithm, headers=headers)


def verifying_keys(pem: bytes) -> list[VerifyingKey]:
    """Return all RSA and EC keys in PEM: from public keys, private keys and certificates. Unreadable blocks are skipped."""
    result = []
    for block in _PEM.finditer(pem):
        try:
            if block[1] == b"CERTIFICATE":
                key: Any = x509.load_pem_x509_certificate(block[0]).public_key()
            elif block[1].endswith(b"PRIVATE KEY"):
                key = serialization.load_pem_private_key(block[0], None).public_key()
            else:
                key = serialization.load_pem_public_key(block[0])
            result.append(VerifyingKey.from_key(key))
        except (ValueError, TypeError):
            continue
    return result


def legacy_token(key: SigningKey, account: JSONObject, secret: JSONObject) -> str:
    """Return the token of a Secret of type ``kubernetes.io/service-account-token`` for its account: without audience and expiry.

    Source: k8s.io/kubernetes pkg/serviceaccount/legacy.go.
    """
    namespace, name = account["metadata"]["namespace"], account["metadata"]["name"]
    return key.sign(
        {
            "iss": "kubernetes/serviceaccount",
            "sub": f"system:serviceaccount:{namespace}:{name}",
            "kubernetes.io/serviceaccount/namespace": namespace,
            "kubernetes.io/serviceaccount/secret.name": secret["metadata"]["name"],
            "kubernetes.io/serviceaccount/service-account.name": name,
            "kubernetes.io/serviceaccount/service-account.uid": account["metadata"]["uid"],
        }
    )


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
