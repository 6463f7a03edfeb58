"""Tokens that are not what they say: each is 401, never 500, and a TokenReview tells why in Kubernetes' words."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kubeloop.client import Client
from kubeloop.meta import Unauthorized
from kubeloop.pki import SigningKey
from tests.apiserver.authentication.token_requests import issued, review, who
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

UNKNOWN_TOKEN = "invalid bearer token"
BAD_SIGNATURE = "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]"
NO_KEY = "[invalid bearer token, invalid signature, no keys found]"


def encoded(data: bytes | dict[str, Any]) -> str:
    text = json.dumps(data).encode() if isinstance(data, dict) else data
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def decoded(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def other_head(token: str, **changed: Any) -> str:
    head, claims, signature = token.split(".")
    return f"{encoded({**decoded(head), **changed})}.{claims}.{signature}"


def other_claims(token: str, **changed: Any) -> str:
    head, claims, signature = token.split(".")
    return f"{head}.{encoded({**decoded(claims), **changed})}.{signature}"


def unsigned(token: str) -> str:
    return other_head(token, alg="none").rpartition(".")[0] + "."


def other_signature(token: str) -> str:
    start, _, signature = token.rpartition(".")
    return f"{start}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"


def signed_by_another_key(token: str, *, named: bool) -> str:
    """With a key of one's own, under the name of the server's (``named``) or its own."""
    head, claims, _ = token.split(".")
    key = SigningKey.create()
    if not named:
        return key.sign(decoded(claims))
    own = encoded({"alg": key.public.algorithm, "kid": decoded(head)["kid"]})
    from jwt.algorithms import ECAlgorithm

    private = ec.generate_private_key(ec.SECP256R1())
    signature = ECAlgorithm(ECAlgorithm.SHA256).sign(f"{own}.{claims}".encode(), private)
    return f"{own}.{claims}.{encoded(signature)}"


CASES = [
    pytest.param(other_signature, BAD_SIGNATURE, id="another signature"),
    pytest.param(unsigned, BAD_SIGNATURE, id="alg none, no signature"),
    pytest.param(lambda token: token.rpartition(".")[0] + ".", BAD_SIGNATURE, id="no signature"),
    pytest.param(lambda token: other_head(token, alg="HS256"), BAD_SIGNATURE, id="an algorithm that is not the key's"),
    pytest.param(lambda token: other_head(token, alg=None), BAD_SIGNATURE, id="no algorithm"),
    pytest.param(lambda token: other_head(token, crit=["exp"]), BAD_SIGNATURE, id="a header that must be understood and is not"),
    pytest.param(lambda token: other_head(token, kid="nosuch"), NO_KEY, id="an unknown key"),
    pytest.param(lambda token: signed_by_another_key(token, named=False), NO_KEY, id="a key of one's own"),
    pytest.param(lambda token: signed_by_another_key(token, named=True), BAD_SIGNATURE, id="a key of one's own under the server's name"),
    pytest.param(lambda token: other_claims(token, sub="system:serviceaccount:kube-system:admin"), BAD_SIGNATURE, id="another subject"),
    pytest.param(lambda token: other_claims(token, exp=4102444800), BAD_SIGNATURE, id="a later end"),
    pytest.param(lambda token: other_claims(token, iss="https://elsewhere.example.com"), UNKNOWN_TOKEN, id="another issuer"),
    pytest.param(lambda token: other_claims(token, iss=5), UNKNOWN_TOKEN, id="an issuer that is no text"),
    pytest.param(lambda token: other_claims(token, iss="kubernetes/serviceaccount"), BAD_SIGNATURE, id="the issuer of token secrets"),
    pytest.param(lambda token: token.rpartition(".")[0], UNKNOWN_TOKEN, id="two parts"),
    pytest.param(lambda token: token + ".x", UNKNOWN_TOKEN, id="four parts"),
    pytest.param(lambda token: token + "=", UNKNOWN_TOKEN, id="padding"),
    pytest.param(lambda token: "!!." + token.partition(".")[2], UNKNOWN_TOKEN, id="a head that is no base64"),
    pytest.param(lambda token: f"{encoded(b'[1]')}.{token.partition('.')[2]}", UNKNOWN_TOKEN, id="a head that is no object"),
    pytest.param(lambda token: f"{encoded(b'{')}.{token.partition('.')[2]}", UNKNOWN_TOKEN, id="a head that is no JSON"),
    pytest.param(lambda token: "a." + encoded(b"[" * 3000) + ".c", UNKNOWN_TOKEN, id="claims that nest deep"),
    pytest.param(lambda token: token + "A" * 8000, BAD_SIGNATURE, id="a long one"),
    pytest.param(lambda token: "ü" + token, UNKNOWN_TOKEN, id="letters that no token has"),
]


@pytest.mark.parametrize(("tampered", "why"), CASES)
async def test_a_token_is_refused_with(server: ServerUnderTest, client: Client, tampered: Callable[[str], str], why: str) -> None:
    token = tampered(await issued(client))
    if token.isascii():
        with pytest.raises(Unauthorized, match=r"Unauthorized"):
            await who(server.config, token)
    assert await review(client, token) == {"user": {}, "error": why}


async def test_a_public_key_is_no_secret_to_sign_with(server: ServerUnderTest, client: Client) -> None:
    token = await issued(client)
    answer = await client.transport.request("GET", "/openid/v1/jwks", accept="*/*")
    [web_key] = [key for key in json.loads(answer.body)["keys"] if key["kid"] == decoded(token.partition(".")[0])["kid"]]
    public = public_key(web_key)
    start = other_head(token, alg="HS256").rpartition(".")[0]
    for form in (Encoding.PEM, Encoding.DER):
        secret = public.public_bytes(form, PublicFormat.SubjectPublicKeyInfo)
        switched = f"{start}.{encoded(hmac.digest(secret, start.encode(), hashlib.sha256))}"
        with pytest.raises(Unauthorized):
            await who(server.config, switched)
        assert (await review(client, switched))["error"] == BAD_SIGNATURE


def public_key(web_key: dict[str, str]) -> rsa.RSAPublicKey | ec.EllipticCurvePublicKey:
    def number(name: str) -> int:
        return int.from_bytes(base64.urlsafe_b64decode(web_key[name] + "=="), "big")

    if web_key["kty"] == "RSA":
        return RSAPublicNumbers(number("e"), number("n")).public_key()
    return ec.EllipticCurvePublicNumbers(number("x"), number("y"), ec.SECP256R1()).public_key()


async def test_a_huge_token_is_refused_like_any_other(client: Client) -> None:
    assert (await review(client, await issued(client) + "A" * 1_000_000))["error"] == BAD_SIGNATURE
    assert (await review(client, "A" * 1_000_000))["error"] == UNKNOWN_TOKEN
