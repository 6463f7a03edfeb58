"""How long tokens hold, by a clock that the test owns; what a restart, another account or another copy makes of them; token secrets."""

from __future__ import annotations

import base64
import copy
import json
import logging
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeloop.api.core.v1 import Container, Pod, PodSpec, Secret, ServiceAccount
from kubeloop.apiserver.authentication.chain import NotAuthenticated
from kubeloop.client import Client
from kubeloop.codec import encode
from kubeloop.meta import ObjectMeta, Resource
from kubeloop.pki import SigningKey, legacy_token
from kubeloop.pki.files import load_or_create_signing_key
from kubeloop.testing import HandlerServer
from kubeloop.timing import FakeClock

MINUTE = 60.0
HOUR = 3600.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def server(clock: FakeClock) -> AsyncIterator[HandlerServer]:
    async with HandlerServer(clock=clock) as found:
        yield found


@pytest.fixture
async def client(server: HandlerServer) -> Client:
    found = server.client()
    await found.create(ServiceAccount(metadata=ObjectMeta(name="builder")))
    return found


def tree(obj: Resource) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode(obj))
    return found


async def fault(server: HandlerServer, token: str) -> str:
    """Why it is refused; empty: it is not."""
    try:
        await server.api.authentication.authenticator.review(token)
    except NotAuthenticated as refused:
        return refused.faults[-1]
    return ""


async def test_a_token_ends_a_minute_after_its_time_though_it_is_remembered(
    server: HandlerServer, client: Client, clock: FakeClock
) -> None:
    token = (await client.service_accounts.create_token("builder", expiration_seconds=600)).status.token
    assert await fault(server, token) == ""
    await clock.advance(10 * MINUTE + 59)
    assert await fault(server, token) == ""
    await clock.advance(2)
    assert await fault(server, token) == "service account token has expired"
    assert await fault(server, token) == "service account token has expired"


async def test_long_tokens_are_not_remembered(server: HandlerServer, client: Client) -> None:
    settings = server.api.authentication.accounts
    account = (await client.get(ServiceAccount, "builder")).metadata
    claims: dict[str, Any] = {"iss": settings.issuer, "sub": "x"}
    claims["kubernetes.io"] = {"namespace": "default", "serviceaccount": {"name": "builder", "uid": account.uid}}
    tracemalloc.start()
    try:
        for number in range(10):
            token = settings.signing.sign({**claims, "aud": [*settings.audiences, "a" * 300_000 + str(number)]})
            assert await fault(server, token) == ""
        del token
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2_000_000  # of three that would have been kept


async def test_a_token_begins_with_its_time_but_for_a_minute(server: HandlerServer, client: Client, clock: FakeClock) -> None:
    settings = server.api.authentication.accounts
    account = (await client.get(ServiceAccount, "builder")).metadata
    now = int(clock.wall().timestamp())
    claims: dict[str, Any] = {"iss": settings.issuer, "sub": "x", "aud": list(settings.audiences), "exp": now + 7200}
    claims["kubernetes.io"] = {"namespace": "default", "serviceaccount": {"name": "builder", "uid": account.uid}}
    assert await fault(server, settings.signing.sign({**claims, "nbf": now + 59})) == ""
    assert await fault(server, settings.signing.sign({**claims, "nbf": now + 62})) == "service account token is not valid yet"
    assert await fault(server, settings.signing.sign({**claims, "iat": now + 62})) == "service account token is issued in the future"
    assert await fault(server, settings.signing.sign({**claims, "exp": "soon"})) == "a time is not a number"
    assert await fault(server, settings.signing.sign({**claims, "aud": {"a": 1}})) == "aud is neither text nor a list of texts"


async def test_a_token_of_a_pod_that_ends_holds_for_its_grace_and_a_minute(server: HandlerServer, client: Client, clock: FakeClock) -> None:
    spec = PodSpec(containers=[Container(name="c", image="i")], node_name="n", service_account_name="builder")
    made = await client.create(Pod(metadata=ObjectMeta(name="p"), spec=spec))
    token = (await client.service_accounts.create_token("builder", bound_to=made)).status.token
    await client.delete(Pod, "p", grace_period_seconds=30)
    await clock.advance(30 + 59)
    assert await fault(server, token) == ""
    await clock.advance(3)
    assert await fault(server, token) == "service account token has been invalidated"


async def test_a_token_of_an_earlier_run_holds_with_the_key_that_was_kept(tmp_path: Path) -> None:
    first = load_or_create_signing_key(tmp_path)
    assert (tmp_path / "sa.key").stat().st_mode & 0o777 == 0o600
    assert load_or_create_signing_key(tmp_path).public.verify(first.sign({"a": 1})) == b'{"a":1}'


class TestTokenSecrets:
    """What a Secret of type kubernetes.io/service-account-token holds."""

    @pytest.fixture
    async def kept(self, server: HandlerServer, client: Client) -> str:
        """The token, in a Secret that the server was given."""
        account = tree(await client.get(ServiceAccount, "builder"))
        annotations = {"kubernetes.io/service-account.name": "builder"}
        made = Secret(metadata=ObjectMeta(name="kept", annotations=annotations), type="kubernetes.io/service-account-token")
        secret = await client.create(made)
        token = legacy_token(server.api.authentication.accounts.signing, account, tree(secret))
        await client.patch(Secret, "kept", {"data": {"token": base64.b64encode(token.encode()).decode()}})
        return token

    async def test_it_has_no_end_and_its_use_is_noted(self, server: HandlerServer, client: Client, clock: FakeClock, kept: str) -> None:
        found = await server.api.authentication.authenticator.review(kept)
        assert (found.user.name, found.audiences) == ("system:serviceaccount:default:builder", server.api.authentication.accounts.audiences)
        assert "authentication.kubernetes.io/credential-id" not in found.user.extra
        assert (await client.get(Secret, "kept")).metadata.labels["kubernetes.io/legacy-token-last-used"] == f"{clock.wall():%Y-%m-%d}"
        await server.api.compactor.stop()  # the history would be compacted every five minutes of these days
        await clock.advance(400 * 24 * HOUR)
        assert await fault(server, kept) == ""
        assert (await client.get(Secret, "kept")).metadata.labels["kubernetes.io/legacy-token-last-used"] == f"{clock.wall():%Y-%m-%d}"

    async def test_it_is_the_token_of_the_secret(self, server: HandlerServer, client: Client, kept: str) -> None:
        assert await fault(server, kept) == ""
        await client.patch(Secret, "kept", {"data": {"token": base64.b64encode(b"another").decode()}})
        assert await fault(server, kept) == "Token does not match server's copy"

    async def test_it_ends_with_its_secret_and_with_its_account(self, server: HandlerServer, client: Client, kept: str) -> None:
        await client.delete(ServiceAccount, "builder")
        assert await fault(server, kept) == 'serviceaccounts "builder" not found'
        await client.delete(Secret, "kept")
        assert await fault(server, kept) == "Token has been invalidated"

    async def test_it_can_be_marked_invalid(self, server: HandlerServer, client: Client, kept: str) -> None:
        await client.patch(Secret, "kept", {"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2020-01-01"}}})
        assert "has been marked invalid" in await fault(server, kept)

    async def test_its_claims_name_its_account(self, server: HandlerServer, client: Client, kept: str) -> None:
        account = tree(await client.get(ServiceAccount, "builder"))
        key = server.api.authentication.accounts.signing
        unnamed = copy.deepcopy(account)
        unnamed["metadata"]["uid"] = ""
        assert await fault(server, legacy_token(key, unnamed, {"metadata": {"name": "kept"}})) == "serviceAccountUID claim is missing"
        assert await fault(server, legacy_token(key, account, {"metadata": {"name": "nosuch"}})) == "Token has been invalidated"
        assert (
            await fault(server, legacy_token(SigningKey.create(), account, {"metadata": {"name": "kept"}}))
            == "invalid signature, no keys found"
        )


async def test_tokens_never_reach_the_log(server: HandlerServer, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = (await client.service_accounts.create_token("builder")).status.token
    for one in (token, token[:-4], token.replace(".", ".x", 1)):
        await fault(server, one)
    assert token[:-40] not in caplog.text
    assert token.split(".")[2][:20] not in caplog.text


def test_a_signing_key_does_not_show_itself() -> None:
    key = SigningKey.create()
    assert repr(key) == "SigningKey(ES256, key hidden)"
