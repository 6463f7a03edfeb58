"""Whatever stands where a token should: it is refused, and nothing breaks. The same cases on every run."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator

from kubeloop.api.core.v1 import ServiceAccount
from kubeloop.apiserver.authentication.chain import NotAuthenticated
from kubeloop.meta import ObjectMeta
from kubeloop.testing import HandlerServer

ISSUER = b'{"iss":"https://kubernetes.default.svc.cluster.local"'
PIECES = (
    b"{",
    b"}",
    b"[",
    b'"',
    b'"alg"',
    b'"kid":',
    b"null",
    b"1e999",
    b"-",
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b',"exp":',
    b"9" * 5000,
)
LETTERS = ".-_=+/ aZ09\u00fc\u20ac\udc80\x00\t"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def odd_tokens(token: str, count: int) -> Iterator[str]:
    """Parts of a valid token, changed, cut, doubled and filled with bytes that are no JSON."""
    chance = random.Random(8)
    head, claims, signature = token.split(".")
    for _ in range(count):
        junk = b"".join(chance.choices(PIECES, k=chance.randrange(6)))
        text = "".join(chance.choices(LETTERS, k=chance.randrange(1, 12)))
        place = chance.randrange(len(claims))
        yield f"{encoded(junk)}.{claims}.{signature}"
        yield f"{head}.{encoded(ISSUER + junk)}.{signature}"
        yield f"{head}.{encoded(ISSUER + b',' + junk + b'}')}.{encoded(junk)}"
        yield f"{head}.{claims[:place]}{text}{claims[place:]}.{signature}"
        yield f"{head}.{claims}.{text}"
        yield text + token
        yield token[: chance.randrange(1, len(token) - 2)]


async def test_nothing_but_the_token_itself_is_accepted() -> None:
    async with HandlerServer() as server:
        client = server.client()
        await client.create(ServiceAccount(metadata=ObjectMeta(name="builder")))
        token = (await client.service_accounts.create_token("builder")).status.token
        review = server.api.authentication.authenticator.review
        assert (await review(token)).user.name == "system:serviceaccount:default:builder"
        for odd in odd_tokens(token, 150):
            try:
                found = (await review(odd)).user.name
            except NotAuthenticated as refused:
                assert refused.faults[0] == "invalid bearer token"  # noqa: PT017 - the loop goes on
            else:
                # A value that begins with a space is no token; text behind a space does not count.
                assert found == "system:anonymous" if odd[:1].isspace() else odd.split(" ")[0] == token
