"""A class's own limiter and tenants: what raises there, or answers nonsense, is named and costs no key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client
from kubeloop.controller import Controller, Manager
from kubeloop.controller.builder.declaration import contained_limiter, contained_tenants
from kubeloop.meta import KubeloopError, ObjectKey, ObjectMeta
from kubeloop.testing import HandlerServer
from kubeloop.timing import Clock
from kubeloop.workqueue import ExponentialLimiter, Limiter

KEY = ObjectKey("", "shop", "web")


class Broken:
    """Each method raises, or ``delay`` gives what it was given."""

    def __init__(self, answer: object = None) -> None:
        self.answer = answer

    def delay(self, item: ObjectKey) -> float:
        if self.answer is None:
            raise RuntimeError("no idea")
        return self.answer  # type: ignore[return-value]  # a program without a type checker

    def forget(self, item: ObjectKey) -> None:
        raise RuntimeError("forgot how")

    def retries(self, item: ObjectKey) -> int:
        raise RuntimeError("cannot count")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(None, "RuntimeError: no idea", id="raises"),
        pytest.param("soon", "TypeError: it returned 'soon', which is not a number of seconds", id="gives text"),
        pytest.param(float("nan"), "it returned nan", id="gives a value that is not a number"),
    ],
)
def test_a_limiter_whose_delay_fails_is_named_and_the_default_pauses_hold(
    caplog: pytest.LogCaptureFixture, answer: object, why: str
) -> None:
    limiter = contained_limiter(Broken(answer), "ShopController")
    assert [limiter.delay(KEY) for _ in range(3)] == [0.005, 0.01, 0.02]
    assert limiter.retries(KEY) == 3
    limiter.forget(KEY)
    assert limiter.delay(KEY) == 0.005
    first, second, *_ = [record for record in caplog.records if "delay" in record.getMessage()]
    assert "ShopController: delay of the limiter that retry_limiter returned failed for shop/web" in first.getMessage()
    assert why in first.getMessage()
    assert first.exc_info is not None
    assert second.exc_info is None, "its traceback once"


def test_the_default_limiter_is_not_wrapped() -> None:
    limiter: ExponentialLimiter[ObjectKey] = ExponentialLimiter()
    assert contained_limiter(limiter, "ShopController") is limiter


def test_keys_whose_tenant_is_unknown_are_one_tenant_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    def broken(key: ObjectKey) -> object:
        if key.name == "list":
            return []
        raise LookupError("no team")

    whose = contained_tenants(broken, "ShopController")
    assert whose is not None
    assert whose(KEY) is None
    assert whose(KEY._replace(name="list")) is None
    texts = [record.getMessage() for record in caplog.records]
    assert "ShopController: the function that tenants() returned failed for shop/web: LookupError: no team" in texts[0]
    assert "unhashable" in texts[1]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with HandlerServer() as server:
        yield server.client()


class Fails(Controller[ConfigMap], name="fails"):
    """Fails once for each object, with a limiter that knows nothing."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.done = asyncio.Event()

    def retry_limiter(self, clock: Clock) -> Limiter[ObjectKey]:
        return Broken()

    async def reconcile(self, config: ConfigMap) -> None:
        self.seen.append(config.metadata.name)
        if self.seen.count(config.metadata.name) == 1:
            raise KubeloopError("not yet")
        if self.seen.count("a") == self.seen.count("b") == 2:
            self.done.set()


async def test_a_controller_with_a_broken_limiter_tries_again_and_works_on_other_keys(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    controller = Fails()
    async with Manager(client, [controller]):
        for name in ("a", "b"):
            await client.create(ConfigMap(metadata=ObjectMeta(name=name)))
        await asyncio.wait_for(controller.done.wait(), 30)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert any("Fails: delay of the limiter that retry_limiter returned failed" in message for message in errors)
