"""Replicas that share their certificates in a Secret, through renewals and a new authority: real handshakes, years by a fake clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from kubeloop.api.admissionregistration.v1 import ValidatingWebhookConfiguration
from kubeloop.api.core.v1 import ConfigMap, Secret
from kubeloop.client import Client, WriteOptions
from kubeloop.controller.webhooks import Denied, Lifetimes, Webhooks, WebhookServer
from kubeloop.controller.webhooks.certificates.rotation import StoredCertificates, renewed
from kubeloop.meta import ApiError, LabelSelector, ObjectMeta
from kubeloop.timing import FakeClock
from tests.controller.webhooks.on_server import served, until
from tests.controller.webhooks.review_requests import shown

pytestmark = pytest.mark.server

DAY: Final = timedelta(days=1)
TIMES: Final = Lifetimes(serving=90 * DAY, authority=300 * DAY, overlap=2 * DAY)
_PATIENCE = 30.0


def hooks_for(namespace: str) -> Webhooks:
    hooks = Webhooks()

    @hooks.validating(ConfigMap, namespace_selector=LabelSelector(match_labels={"kubernetes.io/metadata.name": namespace}))
    async def check(config_map: ConfigMap) -> None:
        if "bad" in config_map.data:
            raise Denied("no bad data")

    return hooks


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(_PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def ago(days: float) -> FakeClock:
    return FakeClock(datetime.now(UTC) - timedelta(days=days))


async def pass_days(clock: FakeClock, days: float) -> None:
    """The time of day goes on, and as much of other time as it takes a server to look at it again."""
    clock.step_wall(days * 86400)
    await clock.advance(600)


def authorities(server: WebhookServer) -> int:
    return server.serving.authorities.count(b"BEGIN CERTIFICATE")


async def refuses_bad_data(client: Client) -> bool:
    """Whether the API server asks a webhook that it trusts. (An untrusted one would refuse all, in other words.)"""
    await client.create(ConfigMap(metadata=ObjectMeta(name="good")), options=WriteOptions(dry_run=True))
    with contextlib.suppress(ApiError):
        await client.create(ConfigMap(metadata=ObjectMeta(name="bad"), data={"bad": "x"}), options=WriteOptions(dry_run=True))
        return False
    return True


async def test_replicas_that_start_together_agree_on_one_certificate(client: Client, namespace: str) -> None:
    hooks = hooks_for(namespace)
    async with AsyncExitStack() as stack:
        contexts = [served(client, hooks, namespace, name=f"together-{namespace}") for _ in range(4)]
        servers = await asyncio.gather(*(stack.enter_async_context(context) for context in contexts))
        secret = await client.get(Secret, "hooks")
        assert {server.serving.certificate for server in servers} == {secret.data["tls.crt"]}
        assert {server.serving.authorities for server in servers} == {secret.data["ca.crt"]}
        assert secret.type == "kubernetes.io/tls"
        (certificate,) = {await shown(server.url, secret.data["ca.crt"]) for server in servers}
        assert certificate == x509.load_pem_x509_certificate(secret.data["tls.crt"]).public_bytes(Encoding.DER)


async def test_what_one_replica_renews_the_other_serves(client: Client, namespace: str) -> None:
    clock, standing = ago(70), ago(70)
    hooks, name = hooks_for(namespace), f"renewed-{namespace}"
    async with (
        served(client, hooks, namespace, name=name, clock=clock, lifetimes=TIMES) as first,
        served(client, hooks, namespace, name=name, clock=standing, lifetimes=TIMES) as second,
    ):
        before = first.serving
        await until(lambda: refuses_bad_data(client))
        await pass_days(clock, 61)  # two thirds of 90 days are over
        await eventually(lambda: first.serving.certificate != before.certificate)
        await eventually(lambda: second.serving == first.serving)
        assert first.serving.authorities == before.authorities
        assert await shown(first.url, before.authorities) == await shown(second.url, before.authorities)
        assert await refuses_bad_data(client)


async def test_a_new_authority_is_trusted_before_it_signs(client: Client, namespace: str) -> None:
    clock, hooks, name = ago(205), hooks_for(namespace), f"authority-{namespace}"
    async with served(client, hooks, namespace, name=name, clock=clock, lifetimes=TIMES) as server:
        old = server.serving.authorities
        seen: list[bytes] = []
        for days in (100, 80):  # its certificate is renewed twice, the last one is valid today
            seen.append(server.serving.certificate)
            await pass_days(clock, days)
            await eventually(lambda: server.serving.certificate != seen[-1])
        assert server.serving.authorities == old
        await until(lambda: refuses_bad_data(client))
        before = server.serving.certificate

        await pass_days(clock, 21)
        await eventually(lambda: authorities(server) == 2)
        by_the_old = await shown(server.url, old)
        assert server.serving.certificate == before
        await until(lambda: trusts(client, name, server.serving.authorities))
        assert await refuses_bad_data(client)

        await pass_days(clock, 2.1)
        await eventually(lambda: server.serving.certificate != before)
        new = server.serving.authorities.removesuffix(old)
        assert await shown(server.url, new) != by_the_old
        assert await refuses_bad_data(client)


async def trusts(client: Client, name: str, bundle: bytes) -> bool:
    found = await client.get(ValidatingWebhookConfiguration, name)
    return [one.client_config.ca_bundle for one in found.webhooks] == [bundle]


async def test_a_secret_that_is_deleted_is_recreated(client: Client, namespace: str) -> None:
    async with served(client, hooks_for(namespace), namespace) as server:
        before = server.serving
        await until(lambda: refuses_bad_data(client))
        await client.delete(Secret, "hooks")
        await eventually(lambda: server.serving != before)
        assert (await client.get(Secret, "hooks")).data["tls.crt"] == server.serving.certificate
        await until(lambda: refuses_bad_data(client))


async def test_while_the_secret_is_spoiled_the_certificate_from_before_is_served(
    client: Client, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(client, hooks_for(namespace), namespace) as server:
        before = server.serving
        secret = await client.get(Secret, "hooks")
        whole = secret.data["tls.key"]
        secret.data["tls.key"] = _other_key()
        secret = await client.update(secret)
        await eventually(lambda: "delete it, and new ones are made" in caplog.text)
        await shown(server.url, before.authorities)
        assert server.serving == before
        assert whole.decode() not in caplog.text
        server.check()


async def test_a_wrong_clock_is_logged_and_nothing_is_renewed_by_it(
    client: Client, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    hooks, name = hooks_for(namespace), f"clock-{namespace}"
    async with served(client, hooks, namespace, name=name) as right:
        async with served(client, hooks, namespace, name=name, clock=ago(1000)) as wrong:
            assert wrong.serving == right.serving
        assert "this clock is wrong, or the clock of the machine that made them was" in caplog.text


def _other_key() -> bytes:
    kept: StoredCertificates = renewed(None, ["x"], TIMES, datetime.now(UTC))
    return kept.key
