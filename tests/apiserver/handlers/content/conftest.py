"""Requests byte by byte, on the embedded server or a real one: headers as they are written, bodies as they come."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from kubeloop.codec import protobuf
from tests.servers import ServerUnderTest

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
FORM = ";g=meta.k8s.io;v=v1;as="


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")

    @property
    def tree(self) -> dict[str, Any]:
        if self.body.startswith(b"k8s\0"):
            return protobuf.decode(self.body)
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def message(self) -> str:
        return str(self.tree["message"])


class Wire:
    """Sends exactly the given headers. A path without a slash is below the test's namespace; ``{ns}`` stands for that."""

    def __init__(self, session: aiohttp.ClientSession, namespace: str) -> None:
        self.session = session
        self.namespace = namespace

    async def __call__(self, method: str, path: str, body: bytes | None = None, /, **headers: str) -> Reply:
        """``content_type="x"`` is sent as ``Content-Type: x``. A header given twice comes back with its values joined by commas."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        skipped = ("Content-Type", "Accept", "Accept-Encoding", "User-Agent")
        async with self.session.request(method, self.url(path), data=body, headers=sent, skip_auto_headers=skipped) as answer:
            found: dict[str, str] = {}
            for name, value in answer.headers.items():
                found[name.lower()] = f"{found[name.lower()]}, {value}" if name.lower() in found else value
            return Reply(answer.status, found, await answer.read())

    def url(self, path: str) -> str:
        path = path.replace("{ns}", self.namespace)
        return path if path.startswith("/") else f"/api/v1/namespaces/{self.namespace}/{path}"

    async def create(self, name: str, **data: str) -> Reply:
        made = await self("POST", "configmaps", config_map(name, **data), content_type=JSON)
        assert made.status == 201, made.body
        return made


def config_map(name: str, **data: str) -> bytes:
    return json.dumps({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": data}).encode()


@pytest.fixture
async def wire(server: ServerUnderTest, namespace: str) -> AsyncIterator[Wire]:
    config = server.config
    connector = aiohttp.TCPConnector(ssl=config.ssl_context())
    async with aiohttp.ClientSession(config.server, connector=connector, auto_decompress=False) as session:
        yield Wire(session, namespace)
