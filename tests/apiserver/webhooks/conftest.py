"""Webhooks of a test on the server under test: configured, waited for, and taken away again."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from kubeloop.meta.errors import ApiError, NotFound
from kubeloop.transport import Response, Transport
from kubeloop.types import JSONObject
from tests.apiserver.webhooks.scripted import Hook, allow, scripted_hook
from tests.servers import ServerUnderTest

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CONFIGMAPS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}
_CANARY = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["CREATE"]}
_NUMBERS = itertools.count(1)
_PATIENCE = 15.0


@dataclass
class World:
    """A namespace of the test's own, a webhook server, and plain requests. ``warnings`` are those of all answers below 400."""

    transport: Transport
    hook: Hook
    namespace: str
    warnings: tuple[str, ...] = ()

    def path(self, resource: str = "configmaps", name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/{resource}" + (f"/{name}" if name else "")

    async def __call__(self, method: str, path: str, body: Any = None, content_type: str = "application/json", **query: Any) -> Any:
        """The answer's body. Raises ApiError."""
        if method in ("PUT", "PATCH", "DELETE"):
            await self._in_watch_cache(path)
        data = None if body is None else json.dumps(body).encode()
        answer: Response = await self.transport.request(method, path, body=data, content_type=content_type, query=query)
        self.warnings += answer.warnings
        return json.loads(answer.body)

    async def _in_watch_cache(self, path: str) -> None:
        """Wait until the server's watch cache has the last write to the object that a path of the namespace names.

        kube-apiserver applies a write first to the object of its watch cache, and once more, with all webhooks, if that one was out of date
        (``Cacher.GuaranteedUpdate``). A test that counts reviews would count both. A read of a revision waits for the cache.
        """
        namespace = f"/api/v1/namespaces/{self.namespace}/"
        parts = path.removeprefix(namespace).split("/")
        if path.startswith(namespace) and len(parts) > 1:
            stored = f"{namespace}{parts[0]}/{parts[1]}"
            with suppress(NotFound):
                latest = json.loads((await self.transport.request("GET", stored)).body)["metadata"]["resourceVersion"]
                await self.transport.request("GET", stored, query={"resourceVersion": latest})

    async def refused(self, *args: Any, **query: Any) -> ApiError:
        """The refusal that a request meets."""
        with pytest.raises(ApiError) as met:
            await self(*args, **query)
        return met.value

    def webhook(self, client_config: JSONObject, name: str = "w.example.com", **rest: Any) -> JSONObject:
        """A webhook of a configuration, for this namespace's ConfigMaps by default."""
        return {
            "name": name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 5,
            "clientConfig": client_config,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
            "rules": [CONFIGMAPS],
            **rest,
        }

    @asynccontextmanager
    async def configured(self, kind: str, *webhooks: JSONObject, name: str = "") -> AsyncIterator[None]:
        """A Mutating or Validating configuration that is in force within the block."""
        name = name or f"test-{os.getpid()}-{next(_NUMBERS)}"
        collection = f"{ADMISSION}/{kind.lower()}webhookconfigurations"
        canary = self.webhook(self.hook.on(f"/canary/{name}", allow()), "canary.example.com", rules=[_CANARY])
        tree = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{kind}WebhookConfiguration", "metadata": {"name": name}}
        await self("POST", collection, {**tree, "webhooks": [*webhooks, canary]})
        try:
            await self._in_force(f"/canary/{name}")
            yield
        finally:
            with suppress(NotFound):
                await self("DELETE", f"{collection}/{name}")

    async def _in_force(self, path: str) -> None:
        """A server learns of a configuration a moment after it is stored."""
        async with asyncio.timeout(_PATIENCE):
            while path not in self.hook.seen:
                await self("POST", self.path("secrets"), {"metadata": {"generateName": "canary-"}}, dryRun="All")
                await asyncio.sleep(0.02)


@pytest.fixture
async def world(server: ServerUnderTest, namespace: str) -> AsyncIterator[World]:
    async with Transport(server.config) as transport, scripted_hook() as hook:
        yield World(transport, hook, namespace)
