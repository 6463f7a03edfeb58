"""A change is encoded once for each requested form, with any number of watches."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.apiserver.handlers import watch
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta
from kubeloop.testing import HandlerServer
from kubeloop.transport import Stream

pytestmark = pytest.mark.embedded

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf;stream=watch"
NAMES = (b"apple", b"banana", b"cherry")
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


async def test_a_change_is_encoded_once_for_each_content_type_however_many_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Counter[str] = Counter()
    frame = watch.Watcher._frame

    def counted(self: Any, type_: str, kv: Any, *, first: bool) -> bytes:
        made[self._form.name] += 1
        return frame(self, type_, kv, first=first)

    monkeypatch.setattr(watch.Watcher, "_frame", counted)
    async with HandlerServer() as server, AsyncExitStack() as stack:
        client: Client = server.client()
        first = await client.create(ConfigMap(metadata=ObjectMeta(name="first")))
        query = {"watch": "true", "resourceVersion": first.metadata.resource_version}
        streams = [
            await stack.enter_async_context(client.transport.stream("GET", "/api/v1/configmaps", query=query, accept=accept))
            for accept in (JSON, PROTOBUF, METADATA)
            for _ in range(20)
        ]
        for name in NAMES:
            await client.create(ConfigMap(metadata=ObjectMeta(name=name.decode())))
        async with asyncio.timeout(20):
            seen = [await received(stream) for stream in streams]
    assert all(one == seen[0] for one in seen[:20])
    assert all(one == seen[20] for one in seen[20:40])
    assert sorted(made.values()) == [3, 3, 3]


async def received(stream: Stream) -> bytes:
    """What came up to the third object."""
    found = b""
    async for chunk in stream.chunks():
        found += chunk
        if all(name in found for name in NAMES):
            break
    return found
