"""Webhook servers beside an API server that is not there yet, or refuses; and names that certificates cannot be for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kubeloop.api.admissionregistration.v1 import ValidatingWebhookConfiguration
from kubeloop.api.core.v1 import Secret
from kubeloop.controller.webhooks import ManagedCertificates, Register, Webhooks, WebhookServer
from kubeloop.controller.webhooks.server import retry_until_available
from kubeloop.meta import ConfigError, Forbidden, KubeloopError, ServiceUnavailable, Status, TransportError, UntrustedCertificate
from kubeloop.testing import HandlerServer, on, with_fake_time
from kubeloop.timing import FakeClock
from tests.controller.webhooks.foos import Foo

BUSY = ServiceUnavailable(Status(message="starting", reason="ServiceUnavailable", code=503))


def hooks_of_foo() -> Webhooks:
    hooks = Webhooks()

    @hooks.validating(Foo)
    def check(foo: Foo) -> None:
        """Allows all."""

    return hooks


def failing(*errors: KubeloopError) -> Callable[[], Any]:
    left = list(errors)

    async def attempt() -> str:
        if left:
            raise left.pop(0)
        return "there"

    return attempt


async def test_what_passes_is_waited_out(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    with caplog.at_level(logging.WARNING, "kubeloop"):
        assert (
            await with_fake_time(retry_until_available("the Secret", failing(TransportError("refused"), BUSY), clock, 120), clock)
            == "there"
        )
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == ["the Secret: refused", f"the Secret: {BUSY}"]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Forbidden(Status(message="no", reason="Forbidden", code=403)), id="a refusal"),
        pytest.param(UntrustedCertificate("who?"), id="an untrusted certificate"),
        pytest.param(ConfigError("spoiled"), id="a Secret that holds something else"),
    ],
)
async def test_a_permanent_error_is_raised_at_once(error: KubeloopError) -> None:
    clock = FakeClock()
    with pytest.raises(type(error)):
        await retry_until_available("the Secret", failing(error), clock, 120)
    assert clock.now() == FakeClock().now()


async def test_the_final_error_gives_the_reason() -> None:
    clock = FakeClock()
    with pytest.raises(ServiceUnavailable, match="starting"):
        await with_fake_time(retry_until_available("the Secret", failing(*[BUSY] * 100), clock, 30), clock)
    assert clock.now() - FakeClock().now() <= 30


async def test_a_server_that_starts_beside_its_api_server_comes_up() -> None:
    clock = FakeClock()
    async with HandlerServer(clock=clock) as api:
        client = api.client()
        api.faults.refuse(ServiceUnavailable, times=2, matching=on("get", Secret))
        api.faults.refuse(ServiceUnavailable, times=2, matching=on("patch", ValidatingWebhookConfiguration))
        certificates = ManagedCertificates("hooks", "default", ["127.0.0.1"])
        server = WebhookServer(
            hooks_of_foo(), certificates, client=client, port=0, register=Register("foo"), registry=CollectorRegistry(), clock=clock
        )
        await with_fake_time(server.__aenter__(), clock)
        try:
            found = await client.get(ValidatingWebhookConfiguration, "foo")
            assert found.webhooks[0].client_config.ca_bundle == server.serving.authorities
        finally:
            await with_fake_time(server.__aexit__(None, None, None), clock)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([], id="none"),
        pytest.param("127.0.0.1", id="a text, which is a list of characters"),
        pytest.param([""], id="an empty one"),
        pytest.param(["münchen.example"], id="a name that is not ASCII"),
        pytest.param(["localhost:8443"], id="one with a port"),
        pytest.param(["x" * 300], id="a name that is too long"),
    ],
)
def test_names_that_no_certificate_can_be_for_are_refused(names: Any) -> None:
    with pytest.raises(ConfigError, match="certificates"):
        ManagedCertificates("hooks", "default", names)


@pytest.mark.parametrize("name", ["::0001", "fe80::1%eth0", "Hooks.Default.SVC", "*.default.svc"])
async def test_a_name_in_another_form_is_no_reason_to_renew(name: str) -> None:
    clock = FakeClock()
    async with HandlerServer(clock=clock) as api:
        first = await ManagedCertificates("hooks", "default", [name]).open(api.client(), clock)
        assert await ManagedCertificates("hooks", "default", [name]).open(api.client(), clock) == first
        assert [call.verb for call in api.faults.writes] == ["create"]


async def test_replicas_of_different_names_agree_on_a_certificate_for_all() -> None:
    """Like pods that give their own addresses: each would remove the other's name without an end."""
    clock = FakeClock()
    async with HandlerServer(clock=clock) as api:
        sources = [ManagedCertificates("hooks", "default", [name]) for name in ("10.0.0.1", "10.0.0.2") * 2]
        served = [await source.open(api.client(), clock) for source in sources]
        assert served[1] == served[2] == served[3]
        assert [call.verb for call in api.faults.writes] == ["create", "update"]
