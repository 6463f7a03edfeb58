"""Closing a client ends its work; an answer that does not come in time ends nothing that continues by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import TransportError
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from tests.faults import SILENCE, FaultServer, Received, Reply, frames

Ask: TypeAlias = Callable[[Client], Awaitable[object]]

POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"containers": [{"name": "c"}]},
    "status": {"phase": "Running"},
}
EMPTY = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "3"}, "items": []}


def quiet(received: Received) -> Reply:
    """Nothing is there but a pod, and nothing happens."""
    if "/pods" in received.target:
        return Reply(body=POD) if "/log" not in received.target else Reply(chunks=[b"2026-01-01T00:00:00.000000000Z line\n"], end="hang")
    return frames(end="hang") if "watch=true" in received.query else Reply(body=EMPTY)


async def watch(client: Client) -> None:
    async with client.watch(ConfigMap, namespace=ALL_NAMESPACES) as events:
        async for _ in events:
            pass


async def watch_relisting(client: Client) -> None:
    async with client.watch(ConfigMap, on_expired="relist", namespace=ALL_NAMESPACES) as events:
        async for _ in events:
            pass


async def follow_log(client: Client) -> None:
    async with client.pods.logs("p", follow=True) as lines:
        async for _ in lines:
            pass


async def follow_logs(client: Client) -> None:
    async with client.pods.merged_logs("p", follow=True) as lines:
        async for _ in lines:
            pass


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(watch, id="a watch"),
        pytest.param(watch_relisting, id="a watch that lists again"),
        pytest.param(lambda c: c.wait_for(ConfigMap, "a", lambda _: True, timeout=3600), id="a wait for a state"),
        pytest.param(lambda c: c.wait_ready(ConfigMap, "a", timeout=3600), id="a wait for readiness"),
        pytest.param(lambda c: c.wait_rollout(Deployment, "a", timeout=3600), id="a wait for a rollout"),
        pytest.param(follow_log, id="a log"),
        pytest.param(follow_logs, id="logs of several pods"),
        pytest.param(lambda c: c.wait_for_events(ConfigMap, lambda _: True, timeout=3600), id="a wait for events"),
    ],
)
async def test_what_goes_on_for_long_ends_when_its_client_is_closed(ask: Ask) -> None:
    watched = asyncio.Event()

    def answer(received: Received) -> Reply:
        if "watch=true" in received.query or "/log" in received.target:
            watched.set()
        return quiet(received)

    clock = FakeClock()
    async with FaultServer(answer=answer) as server, Client(Transport(server.config()), clock=clock) as client:
        running = asyncio.ensure_future(ask(client))
        async with asyncio.timeout(60):
            await watched.wait()
            await client.close()
            await advance(clock, running)
        with pytest.raises(TransportError, match="closed"):
            await running


async def test_a_wait_outlives_an_answer_that_does_not_come_in_time() -> None:
    clock = FakeClock()
    async with (
        FaultServer(SILENCE, Reply(body=EMPTY)) as server,
        Client(Transport(server.config(), timeout=0.5), clock=clock) as client,
        asyncio.timeout(60),
    ):
        running = asyncio.ensure_future(client.wait_gone(ConfigMap, "a", timeout=1e9))
        await advance(clock, running)
        await running
        assert len(server.received) > 1


async def advance(clock: FakeClock, running: asyncio.Future[Any]) -> None:
    while not running.done():
        await clock.advance(0.25)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(asyncio.wait([running])), 0.01)
