"""The attacker and the target: a service account that may use ConfigMaps of its namespace only, and a Secret in another one."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from kubeloop.api.core.v1 import Namespace, Secret, ServiceAccount
from kubeloop.api.rbac.v1 import PolicyRule, Role, RoleBinding, RoleRef, Subject
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta
from tests.servers import ServerUnderTest

#: Only an administrator may ever read this.
GOLD = "the-gold-of-the-other-namespace"
_PATIENCE = 30.0


@dataclass(frozen=True)
class Answered:
    status: int
    headers: str
    body: str

    @property
    def has_gold(self) -> bool:
        return GOLD in self.body or base64.b64encode(GOLD.encode()).decode() in self.body


@dataclass(frozen=True)
class Thief:
    """Sends bytes over TLS, by default with the token of its account. ``home`` is its namespace, ``other`` that of the Secret."""

    host: str
    port: int
    tls: ssl.SSLContext
    token: str
    home: str
    other: str

    def written(self, text: str) -> str:
        return text.replace("{home}", self.home).replace("{other}", self.other)

    async def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answered:
        """One request, whose path goes out as it is."""
        lines = [f"{method} {self.written(path)} HTTP/1.1", "Host: x", "Connection: close"]
        given = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        if body:
            given |= {"Content-Length": str(len(body)), "Content-Type": given.get("Content-Type", "application/json")}
        lines += [f"{name}: {self.written(value)}" for name, value in given.items() if value]
        answers = parsed(await self.raw(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body))
        assert len(answers) == 1, answers
        return answers[0]

    async def raw(self, sent: bytes) -> bytes:
        """All that comes until the server closes."""
        reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self.tls)
        try:
            async with asyncio.timeout(_PATIENCE):
                writer.write(sent)
                return await reader.read()
        except (ConnectionError, ssl.SSLError):
            return b""
        finally:
            writer.transport.abort()


def parsed(data: bytes) -> list[Answered]:
    """Answers that follow each other, as their framing says."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        text = head.decode("latin-1")
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in text.split("\r\n")[1:])}
        body = b""
        if fields.get("transfer-encoding") == "chunked":
            while True:
                size, _, data = data.partition(b"\r\n")
                length = int(size or b"0", 16)
                body, data = body + data[:length], data[length + 2 :]
                if not length:
                    break
        elif "content-length" in fields:
            length = int(fields["content-length"])
            body, data = data[:length], data[length:]
        else:
            body, data = data, b""
        found.append(Answered(int(text.split(" ", 2)[1]), text, body.decode("utf-8", "replace")))
    return found


@pytest.fixture
async def thief(server: ServerUnderTest, client: Client, namespace: str) -> AsyncIterator[Thief]:
    other = f"{namespace}-vault"
    await client.create(Namespace(metadata=ObjectMeta(name=other)))
    await client.create(Secret(metadata=ObjectMeta(name="gold", namespace=other), string_data={"gold": GOLD}))
    await client.create(ServiceAccount(metadata=ObjectMeta(name="thief")))
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]
    await client.create(
        Role(metadata=ObjectMeta(name="maps"), rules=[PolicyRule(api_groups=[""], resources=["configmaps"], verbs=verbs)]),
    )
    await client.create(
        RoleBinding(
            metadata=ObjectMeta(name="maps"),
            role_ref=RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="maps"),
            subjects=[Subject(kind="ServiceAccount", name="thief", namespace=namespace)],
        ),
    )
    token = (await client.service_accounts.create_token("thief", expiration_seconds=3600)).status.token
    address = urlsplit(server.config.server)
    assert address.hostname is not None
    assert address.port is not None
    found = Thief(address.hostname, address.port, no_certificate(server), token, namespace, other)
    await _may_read_at_home(found)
    yield found
    await client.delete(Namespace, other)


def no_certificate(server: ServerUnderTest) -> ssl.SSLContext:
    authority = server.config.ca
    assert authority is not None
    return ssl.create_default_context(cadata=authority.read().decode())


async def _may_read_at_home(thief: Thief) -> None:
    """A real server learns of new roles a moment later."""
    async with asyncio.timeout(_PATIENCE):
        while (await thief.ask("GET", "/api/v1/namespaces/{home}/configmaps")).status != 200:
            await asyncio.sleep(0.05)


def config_map(name: str, **fields: Any) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **fields}).encode()
