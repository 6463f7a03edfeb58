"""The API server of a run, and what goes wrong with it: an embedded server, or a real one behind a network that fails."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from kubeloop.api.core.v1 import ConfigMap, Namespace
from kubeloop.client import Client
from kubeloop.config import ClusterConfig, load_config
from kubeloop.meta import AlreadyExists, NotFound, ObjectMeta
from kubeloop.testing import TlsTestServer
from kubeloop.transport import Transport
from tests.client.streams.relay import Relay

#: Namespaces in which a run writes.
NAMESPACES: Final = ("shop", "bank")

#: A fault by name: its weight among the steps of a run, and the function that causes it.
Faults = Mapping[str, tuple[int, Callable[[], Awaitable[None]]]]


@dataclass(frozen=True)
class FaultyServer:
    """An API server for a proxy, with the namespaces of a run.

    Attributes:
        config: The server as the proxy reaches it.
        client: Reaches the server directly.
        faults: What can go wrong between proxy and server.
    """

    config: ClusterConfig
    client: Client
    faults: Faults


@asynccontextmanager
async def embedded_server() -> AsyncIterator[FaultyServer]:
    """Provide an embedded server, which restarts, cuts and expires watches."""
    async with TlsTestServer(history_revisions=500) as server:

        async def cut() -> None:
            server.faults.cut_streams()

        async def expire() -> None:
            server.faults.expire_streams()

        faults: Faults = {
            "restart the server": (1, server.restart),
            "cut the server's streams": (3, cut),
            "expire the server's streams": (2, expire),
        }
        client = server.client()
        await _prepare(client)
        yield FaultyServer(server.config, client, faults)


@asynccontextmanager
async def real_server(kubeconfig: Path) -> AsyncIterator[FaultyServer]:
    """Provide the server of a kubeconfig, whose connections to the proxy break. Its namespaces ``shop`` and ``bank`` are emptied."""
    direct = load_config(kubeconfig)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(Transport(direct)))
        relay = await stack.enter_async_context(Relay(direct.server))

        async def cut() -> None:
            relay.cut()

        await _prepare(client)
        stack.push_async_callback(_clear, client)
        yield FaultyServer(msgspec.structs.replace(direct, server=relay.url), client, {"cut the server's connections": (5, cut)})


async def _prepare(client: Client) -> None:
    for name in NAMESPACES:
        with contextlib.suppress(AlreadyExists):
            await client.create(Namespace(metadata=ObjectMeta(name=name)))
    await _clear(client)


async def _clear(client: Client) -> None:
    for namespace in NAMESPACES:
        for found in await client.list(ConfigMap, namespace=namespace):
            with contextlib.suppress(NotFound):
                await client.delete(ConfigMap, found.metadata.name, namespace=namespace)
