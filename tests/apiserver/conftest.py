"""A raw HTTPS client of a server in the test's own event loop: what the server says on the wire is what these tests are about."""

from __future__ import annotations

import io
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from kubeloop.apiserver.filters import OperationOptions
from kubeloop.endpoints.access import AUTHENTICATED, MASTERS, User
from kubeloop.testing import TlsTestServer
from kubeloop.timing import Clock, SystemClock

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"

TOKENS = {
    "admin-token": User("admin", (MASTERS, AUTHENTICATED), "admin-uid"),
    "alice-token": User("alice", ("devs", AUTHENTICATED), "alice-uid"),
}


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    text: str
    warnings: list[str] = field(default_factory=list)

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def message(self) -> str:
        return str(self.body["message"])

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])


class Api:
    """Requests as an administrator, unless a token says otherwise."""

    def __init__(self, server: TlsTestServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.session = session

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.server.api.authority.decode())

    async def __call__(
        self, method: str, path: str, body: Any = None, *, content: str = "", accept: str = "", token: str = "admin-token", **headers: str
    ) -> Reply:
        sending = body if isinstance(body, str | None) else json.dumps(body)
        data = None if sending is None else io.BytesIO(sending.encode())
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        if content or data is not None:
            sent["Content-Type"] = content or "application/json"
        if accept:
            sent["Accept"] = accept
        async with self.session.request(method, path, data=data, headers=sent) as answer:
            text = await answer.text()
            return Reply(answer.status, dict(answer.headers), text, answer.headers.getall("Warning", []))

    async def create(self, name: str, path: str = CONFIGMAPS, **rest: Any) -> Reply:
        metadata = {"name": name, **rest.pop("metadata", {})}
        made = await self("POST", path, {"metadata": metadata, **rest})
        assert made.status == 201, made.text
        return made

    @asynccontextmanager
    async def watch(self, path: str, accept: str = "") -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        headers = {"Authorization": "Bearer admin-token", **({"Accept": accept} if accept else {})}
        async with self.session.get(path, headers=headers) as answer:
            assert answer.status == 200, await answer.text()

            async def events() -> AsyncIterator[dict[str, Any]]:
                async for line in answer.content:
                    yield json.loads(line)

            yield events()

    async def events(self, path: str, count: int) -> list[dict[str, Any]]:
        """The first ``count`` events of a watch."""
        found: list[dict[str, Any]] = []
        async with self.watch(path) as events:
            async for event in events:
                found.append(event)
                if len(found) == count:
                    break
        return found


@asynccontextmanager
async def running_api(clock: Clock | None = None, operation: OperationOptions | None = None) -> AsyncIterator[Api]:
    async with TlsTestServer(tokens=TOKENS, clock=clock or SystemClock(), operation=operation, notices=True) as server:
        context = ssl.create_default_context(cadata=server.api.authority.decode())
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        async with aiohttp.ClientSession(server.url, connector=connector) as session:
            yield Api(server, session)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with running_api() as found:
        yield found
