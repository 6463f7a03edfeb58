"""The issuer of service accounts' tokens, as verifiers find it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from kubeloop.apiserver.authentication.options import TokenSettings
from kubeloop.apiserver.server.non_resource_paths import CONFIGURATION, KEYS, IssuerDocuments
from kubeloop.meta.errors import ConfigError, MethodNotAllowed, NotAcceptable
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request

URL = "https://kubernetes.default.svc.cluster.local"


def public(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def private(key: PrivateKeyTypes) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def request(path: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> Request:
    async def nothing(_: int) -> bytes:
        return b""

    return Request(method, path, "", headers or {}, nothing)


def tree(answer: Answer | None) -> Any:
    assert answer is not None
    assert answer.body is not None
    return msgspec.json.decode(answer.body)


def number(text: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")


def test_keys_are_published_once_each_and_never_the_private_part(tmp_path: Path, rsa_key: rsa.RSAPrivateKey) -> None:
    curve = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "both.pem").write_bytes(public(rsa_key) + private(curve))
    (tmp_path / "again.pem").write_bytes(private(rsa_key))
    settings = TokenSettings.read(key_files=[tmp_path / "both.pem", tmp_path / "again.pem"], signing_file=tmp_path / "again.pem")
    documents = IssuerDocuments(settings, "127.0.0.1:1")
    first, second = tree(documents.answer(request(KEYS)))["keys"]
    assert (first["kty"], first["alg"], first["e"], first["use"]) == ("RSA", "RS256", "AQAB", "sig")
    assert number(first["n"]) == rsa_key.public_key().public_numbers().n
    assert (second["kty"], second["crv"], second["alg"]) == ("EC", "P-256", "ES256")
    assert number(second["x"]) == curve.public_key().public_numbers().x
    assert first.keys() | second.keys() == {"use", "kty", "kid", "alg", "n", "e", "crv", "x", "y"}
    assert len({first["kid"], second["kid"]}) == 2


def test_the_configuration_leads_to_the_keys(tmp_path: Path, rsa_key: rsa.RSAPrivateKey) -> None:
    (tmp_path / "sa.key").write_bytes(private(rsa_key))
    document = tree(
        IssuerDocuments(TokenSettings.read(signing_file=tmp_path / "sa.key"), "127.0.0.1:1").answer(request(CONFIGURATION + "/"))
    )
    assert document == {
        "issuer": URL,
        "jwks_uri": "https://127.0.0.1:1/openid/v1/jwks",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
    }
    elsewhere = TokenSettings.read(keys_at="https://keys.example.com/all")
    assert tree(IssuerDocuments(elsewhere, "127.0.0.1:1").answer(request(CONFIGURATION)))["jwks_uri"] == "https://keys.example.com/all"


def test_documents_are_only_read_and_only_in_their_form() -> None:
    documents = IssuerDocuments(TokenSettings(), "127.0.0.1:1")
    assert documents.answer(request("/openid/v1")) is None
    with pytest.raises(MethodNotAllowed):
        documents.answer(request(KEYS, "POST"))
    with pytest.raises(NotAcceptable, match=r"Available representations: application/jwk-set\+json"):
        documents.answer(request(KEYS, headers={"Accept": "text/html"}))


@pytest.mark.parametrize(
    ("issuers", "message"),
    [
        pytest.param(["kubernetes"], "kubernetes: not an https URL", id="the first issuer is an https URL"),
        pytest.param([URL, URL], "named twice", id="none is named twice"),
        pytest.param([""], "an empty issuer", id="none is empty"),
        pytest.param([URL + "?a=b"], "without query", id="none has a query"),
    ],
)
def test_an_invalid_issuer_is_refused_with_the_flag(issuers: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match="--service-account-issuer") as refused:
        TokenSettings.read(issuers=issuers)
    assert message in str(refused.value)


def test_a_file_without_keys_is_named(tmp_path: Path) -> None:
    (tmp_path / "sa.pub").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match=r"sa\.pub: no RSA or EC key in it"):
        TokenSettings.read(key_files=[tmp_path / "sa.pub"])
    with pytest.raises(ConfigError, match=r"none\.pub: No such file"):
        TokenSettings.read(key_files=[tmp_path / "none.pub"])


def test_a_token_lasts_an_hour_at_least() -> None:
    with pytest.raises(ConfigError, match="between 1 hour and 2\\^32 seconds"):
        TokenSettings.read(max_expiration=60)


def test_the_signing_key_also_verifies(tmp_path: Path, rsa_key: rsa.RSAPrivateKey) -> None:
    (tmp_path / "sa.pub").write_bytes(public(rsa_key))
    (tmp_path / "sa.key").write_bytes(private(rsa_key))
    (tmp_path / "other.key").write_bytes(private(ec.generate_private_key(ec.SECP256R1())))
    chosen = TokenSettings.read(key_files=[tmp_path / "sa.pub"], signing_file=tmp_path / "sa.key")
    assert [key.algorithm for key in chosen.all_keys] == ["RS256"]
    with pytest.raises(ConfigError, match=r"other\.key: what it signs is verified by no key"):
        TokenSettings.read(key_files=[tmp_path / "sa.pub"], signing_file=tmp_path / "other.key")


def test_keys_of_files_verify_beside_the_signing_key(tmp_path: Path, rsa_key: rsa.RSAPrivateKey) -> None:
    (tmp_path / "old.pub").write_bytes(public(rsa_key))
    assert [key.algorithm for key in TokenSettings.read(key_files=[tmp_path / "old.pub"]).all_keys] == ["RS256", "ES256"]
