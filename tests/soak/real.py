"""A real server as the subject of a soak: only the network fails, for the server is not ours to break."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from kubeloop.api.core.v1 import ConfigMap, Namespace
from kubeloop.client import Client
from kubeloop.config import load_config
from kubeloop.meta import AlreadyExists, NotFound, ObjectMeta
from kubeloop.transport import Transport
from tests.cache.model.history import ClientWriter, Writer
from tests.cache.model.world import ServerSide, Step

_NAMESPACES = ("soak-a", "soak-b", "soak-c")


class RealSide:
    """Writes go to the server directly, not by way of the failing network."""

    def __init__(self, client: Client) -> None:
        self.config = client.transport.config
        self.writer: Writer = ClientWriter(client, _NAMESPACES)
        self.faults: dict[str, Callable[[Step], Any]] = {}

    def rest(self) -> None:
        """Nothing was asked of the server that would have to end."""


@contextlib.asynccontextmanager
async def real_side(kubeconfig: Path) -> AsyncIterator[tuple[ServerSide, tuple[str, ...]]]:
    """Its own namespaces, emptied before and after. The namespaces stay when no controller finishes their deletion."""
    async with Client(Transport(load_config(kubeconfig))) as client:
        for name in _NAMESPACES:
            with contextlib.suppress(AlreadyExists):
                await client.create(Namespace(metadata=ObjectMeta(name=name)))
        await _clear(client)
        try:
            yield RealSide(client), _NAMESPACES
        finally:
            await _clear(client)


async def _clear(client: Client) -> None:
    for namespace in _NAMESPACES:
        for one in await client.list(ConfigMap, namespace=namespace):
            with contextlib.suppress(NotFound):
                await client.delete(ConfigMap, one.metadata.name, namespace=namespace)
