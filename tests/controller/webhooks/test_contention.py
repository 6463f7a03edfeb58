"""A CA bundle that two fill in, each with its own: neither gives in, and neither keeps the API server busy."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.api.admissionregistration.v1 import ValidatingWebhookConfiguration
from kubeloop.client import Client
from kubeloop.controller.webhooks import Url, Webhooks
from kubeloop.controller.webhooks.registration import Registrar, registered
from kubeloop.testing import HandlerServer, eventually, one
from kubeloop.timing import FakeClock
from tests.controller.webhooks.foos import Foo

OURS, THEIRS = b"ours", b"theirs"
SPOIL = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "dGhlaXJz"}]


def trusts(bundle: bytes, configuration: ValidatingWebhookConfiguration) -> bool:
    return [webhook.client_config.ca_bundle for webhook in configuration.webhooks] == [bundle]


async def becomes(client: Client, bundle: bytes, within: float) -> None:
    await eventually(one(client, ValidatingWebhookConfiguration, "foo"), lambda obj: trusts(bundle, obj), within=within)


async def test_after_five_times_it_is_put_right_every_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    hooks = Webhooks()

    @hooks.validating(Foo)
    def check(foo: Foo) -> None:
        """Allows all."""

    clock = FakeClock()
    async with HandlerServer(clock=clock) as api:
        client = api.client()
        registrar = Registrar(client, clock, registered(hooks, "foo", Url("https://127.0.0.1:9443")), b"")
        await registrar.apply()
        registrar.use(OURS)
        keeping = asyncio.create_task(registrar.keep())
        try:
            await becomes(client, OURS, 1)
            for _ in range(4):
                await client.patch(ValidatingWebhookConfiguration, "foo", SPOIL, type="json")
                await becomes(client, OURS, 1)
            assert "again and again" not in caplog.text
            await client.patch(ValidatingWebhookConfiguration, "foo", SPOIL, type="json")
            began = clock.now()
            await becomes(client, OURS, 30)
            assert 5 <= clock.now() - began <= 10
            assert "ValidatingWebhookConfiguration foo keeps being changed, probably by another writer" in caplog.text
        finally:
            keeping.cancel()
            await asyncio.wait((keeping,))
