"""Whatever is cancelled, wherever: nothing is left behind, and the next request is answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import ApiError, DeadlineError, ObjectMeta, Unstructured

pytestmark = pytest.mark.server

Ask: TypeAlias = Callable[[Client], Awaitable[object]]

NAME = "a"
ANY = Unstructured.for_kind("v1", "ConfigMap")


async def list_whole(client: Client) -> None:
    await client.list(ConfigMap, namespace=client.namespace, limit=3)


async def list_streaming(client: Client) -> None:
    async for _ in client.list(ConfigMap, namespace=client.namespace, limit=3):
        await asyncio.sleep(0)


async def list_ahead(client: Client) -> None:
    async for _ in client.list(ConfigMap, namespace=client.namespace, limit=2).pages(prefetch=3):
        await asyncio.sleep(0)


async def watch_on(client: Client) -> None:
    async with client.watch(ConfigMap, namespace=client.namespace) as events:
        async for _ in events:
            pass


async def follow_logs(client: Client) -> None:
    async with client.pods.logs("absent", follow=True) as lines:
        async for _ in lines:
            pass


async def roll_out(client: Client) -> None:
    async for _ in client.rollout_status(Deployment, "absent", timeout=60):
        pass


async def forward(client: Client) -> None:
    async with client.pods.port_forward("absent", ":80"):
        pass


async def discover(client: Client) -> None:
    client.mapper.forget()
    await client.get(ANY, NAME)


VERBS: list[Ask] = [
    lambda c: c.get(ConfigMap, NAME),
    lambda c: c.get_metadata(ConfigMap, NAME),
    list_whole,
    list_streaming,
    list_ahead,
    watch_on,
    discover,
    follow_logs,
    roll_out,
    forward,
    lambda c: c.pods.exec("absent", ["ls"]),
    lambda c: c.patch(ConfigMap, NAME, {"data": {"b": "1"}}),
    lambda c: c.update_with_retry(ConfigMap, NAME, lambda obj: obj.data.update(c="1")),
    lambda c: c.apply(ConfigMap(metadata=ObjectMeta(name="applied"), data={"a": "1"}), field_manager="tests", force=True),
    lambda c: c.create_or_update(ConfigMap(metadata=ObjectMeta(name="other")), lambda obj: obj.data.update(c="1")),
    lambda c: c.wait_for(ConfigMap, NAME, lambda _: False, timeout=60),
    lambda c: c.wait_gone(ConfigMap, NAME, timeout=60),
    lambda c: c.wait_for_events(ConfigMap, lambda _: False, timeout=60, namespace=ALL_NAMESPACES),
]


async def test_verbs_that_are_cancelled_anywhere_leave_nothing_behind(client: Client) -> None:
    chance = random.Random(6)
    for number in range(10):
        await client.create(ConfigMap(metadata=ObjectMeta(name=f"c{number}")))
    await client.create(ConfigMap(metadata=ObjectMeta(name=NAME)))
    before = asyncio.all_tasks()
    # A verb suspends a few times only: each is cut at any of them, some after they have answered.
    for turns in range(24):
        running = [asyncio.ensure_future(ask(client)) for ask in chance.sample(VERBS, 6)]
        for _ in range(turns):
            await asyncio.sleep(0)
        if turns % 3 == 0:
            await client.get(ConfigMap, NAME)  # bytes have come in meanwhile
        for one in running:
            one.cancel()
        for one in running:
            with suppress(asyncio.CancelledError, ApiError, DeadlineError):
                await one
    async with asyncio.timeout(60):
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0.01)
    assert (await client.get(ConfigMap, NAME)).metadata.name == NAME
    assert {f"c{number}" for number in range(10)} < {
        one.metadata.name for one in await client.list(ConfigMap, limit=3, namespace=ALL_NAMESPACES)
    }
