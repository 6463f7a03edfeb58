"""A server under test with an extension server behind it: a Service, an APIService, and plain requests as an administrator."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from kubeloop.types import JSONObject
from tests.apiserver.aggregation.extension import Extension, extension_server
from tests.servers import ServerUnderTest

API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_NUMBERS = itertools.count(1)
_PATIENCE = 60.0


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)


@dataclass
class World:
    """A namespace of the test's own, with an extension server that is not registered yet."""

    session: aiohttp.ClientSession
    namespace: str
    extension: Extension
    is_real: bool
    service: str = "extension"
    made: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.extension.version}.{self.extension.group}"

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else json.dumps(body)
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        async with self.session.request(method, path, data=data, headers=sent, allow_redirects=False) as answer:
            return Reply(answer.status, dict(answer.headers), await answer.text())

    async def expose(self, **spec: Any) -> None:
        """The Service: a name for loopback, since no client may write an endpoint there."""
        given = spec or {"type": "ExternalName", "externalName": "127.0.0.1"}
        made = await self("POST", f"/api/v1/namespaces/{self.namespace}/services", {"metadata": {"name": self.service}, "spec": given})
        assert made.status == 201, made.text

    def api_service(self, **spec: Any) -> JSONObject:
        service = {"namespace": self.namespace, "name": self.service, "port": self.extension.port}
        given = {
            "group": self.extension.group,
            "version": self.extension.version,
            "groupPriorityMinimum": 2000,
            "versionPriority": 15,
            "caBundle": self.extension.bundle,
            "service": service,
            **spec,
        }
        return {"metadata": {"name": self.name}, "spec": {name: value for name, value in given.items() if value is not None}}

    async def register(self, **spec: Any) -> None:
        made = await self("POST", API_SERVICES, self.api_service(**spec))
        assert made.status == 201, made.text
        self.made.append(self.name)

    async def available(self) -> None:
        """Registered, found available, and forwarded to."""
        await self.expose()
        await self.register()
        await self.until_reason("Passed")
        await self.until(self.extension.path, lambda reply: reply.status == 200)

    async def condition(self) -> JSONObject:
        status = (await self("GET", f"{API_SERVICES}/{self.name}")).body.get("status") or {}
        found = [one for one in status.get("conditions") or [] if one["type"] == "Available"]
        return found[0] if found else {}

    async def until_reason(self, reason: str) -> JSONObject:
        async with asyncio.timeout(_PATIENCE):
            while (found := await self.condition()).get("reason") != reason:
                await asyncio.sleep(0.03)
            return found

    async def until(self, path: str, done: Callable[[Reply], bool], **headers: str) -> Reply:
        """The first answer that is ``done``: what a server knows of others, it learns a moment later."""
        async with asyncio.timeout(_PATIENCE):
            while not done(reply := await self("GET", path, **headers)):
                await asyncio.sleep(0.05)
            return reply


@asynccontextmanager
async def world_of(server: ServerUnderTest, namespace: str, **extension: Any) -> AsyncIterator[World]:
    """With a session to close and APIServices to take away."""
    config = server.config
    connector = aiohttp.TCPConnector(ssl=config.ssl_context(), limit=0)
    group = f"g{next(_NUMBERS)}-{os.getpid()}.aggregation.example.com"
    async with (
        extension_server(group, f"extension.{namespace}.svc", **extension) as made,
        aiohttp.ClientSession(config.server, connector=connector) as session,
    ):
        world = World(session, namespace, made, server.is_real)
        try:
            yield world
        finally:
            for name in world.made:
                await world("DELETE", f"{API_SERVICES}/{name}")


@pytest.fixture
async def world(server: ServerUnderTest, namespace: str) -> AsyncIterator[World]:
    async with world_of(server, namespace) as found:
        yield found
