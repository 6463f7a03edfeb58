"""Random histories of writes: objects made, changed, deleted, made again, moved in and out of a selector, in several namespaces."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client
from kubeloop.meta import Conflict, NotFound, ObjectMeta
from kubeloop.testing import TlsTestServer
from tests.cache.model.contract import Key, Seen

PREFIX = "/registry/core/configmaps/"
APPS = ("web", "web", "db", "")
COLORS = ("red", "green", "blue", "")


@dataclass(frozen=True)
class Content:
    """What the server has of one object, as far as informers of these tests look at it."""

    seen: Seen
    labels: dict[str, str]
    color: str


class Writer(Protocol):
    """Writes one random change; knows the present objects."""

    async def write(self, rng: random.Random, key: Key) -> None: ...

    async def content(self) -> dict[Key, Content]: ...


def random_parts(rng: random.Random) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and data."""
    app, color = rng.choice(APPS), rng.choice(COLORS)
    data = {"n": str(rng.randrange(1_000_000)), "padding": "x" * rng.choice((0, 0, 10, 300))}
    return ({"app": app} if app else {}), ({"color": color} if color else {}) | data


class StorageWriter:
    """Straight into the embedded server's storage: the tests are about reading, and this is fifty times as fast as requests."""

    def __init__(self, server: TlsTestServer) -> None:
        self._server = server

    async def write(self, rng: random.Random, key: Key) -> None:
        storage = self._server.api.storage
        path = f"{PREFIX}{key[0]}/{key[1]}"
        found, _ = await storage.get(path)
        labels, data = random_parts(rng)
        if found is not None and rng.random() < 0.25:
            await storage.write(path, None, expected=found.mod_revision)
            return
        uid = str(uuid.UUID(int=rng.getrandbits(128))) if found is None else msgspec.json.decode(found.value)["metadata"]["uid"]
        metadata = {"name": key[1], "namespace": key[0], "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
        obj: dict[str, Any] = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata | ({"labels": labels} if labels else {})}
        value = msgspec.json.encode(obj | {"data": data})
        await storage.write(path, value, expected=found.mod_revision if found else 0)

    async def content(self) -> dict[Key, Content]:
        found = await self._server.api.storage.range(PREFIX, PREFIX[:-1] + "0")
        there = {}
        for kv in found.items:
            obj = msgspec.json.decode(kv.value)
            metadata = obj["metadata"]
            there[metadata["namespace"], metadata["name"]] = Content(
                Seen(metadata["uid"], kv.mod_revision), metadata.get("labels", {}), obj.get("data", {}).get("color", "")
            )
        return there


class ClientWriter:
    """By requests, to any server. ``namespaces``: the only ones that count."""

    def __init__(self, client: Client, namespaces: tuple[str, ...]) -> None:
        self._client = client
        self._namespaces = namespaces
        self._there: dict[Key, ConfigMap] = {}

    async def write(self, rng: random.Random, key: Key) -> None:
        client, there = self._client, self._there
        labels, data = random_parts(rng)
        found = there.get(key)
        try:
            if found is None:
                made = ConfigMap(metadata=ObjectMeta(name=key[1], namespace=key[0], labels=labels), data=data)
                there[key] = await client.create(made)
            elif rng.random() < 0.25:
                await client.delete(ConfigMap, key[1], namespace=key[0])
                del there[key]
            else:
                found.metadata.labels, found.data = labels, data
                there[key] = await client.update(found)
        except (Conflict, NotFound):
            there.pop(key, None)

    async def content(self) -> dict[Key, Content]:
        there = {}
        for namespace in self._namespaces:
            for one in await self._client.list(ConfigMap, namespace=namespace):
                metadata = one.metadata
                seen = Seen(metadata.uid, int(metadata.resource_version))
                there[namespace, metadata.name] = Content(seen, dict(metadata.labels or {}), (one.data or {}).get("color", ""))
        return there
