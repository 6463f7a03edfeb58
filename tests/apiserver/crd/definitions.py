"""A definition of Foos that is served while tests of a module run, on whichever server they run against."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from kubeloop.meta import ApiError
from kubeloop.meta.status import Status
from kubeloop.transport import Transport
from kubeloop.types import JSONObject
from tests.servers import ServerUnderTest

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Foos:
    """Requests to the Foos of one definition."""

    server: ServerUnderTest
    group: str

    @property
    def path(self) -> str:
        return f"{DEFINITIONS}/foos.{self.group}"

    def foo(self, name: str = "a", **fields: Any) -> JSONObject:
        return {"apiVersion": f"{self.group}/v1", "kind": "Foo", "metadata": {"name": name}, **fields}

    async def ask(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> tuple[int, Any]:
        """The status and what was answered; of a refusal the Status."""
        data = None if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        path, _, asked = path.partition("?")
        query = dict(parse_qsl(asked))
        async with Transport(self.server.config) as transport:
            try:
                response = await transport.request(method, path, query=query, body=data, content_type=content_type)
            except ApiError as refused:
                return refused.status.code, refused.status
            return response.status, json.loads(response.body)

    def below(self, namespace: str, rest: str = "", version: str = "v1") -> str:
        return f"/apis/{self.group}/{version}/namespaces/{namespace}/foos{rest}"


def version(name: str, schema: JSONObject, **parts: Any) -> JSONObject:
    return {"name": name, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **parts}


@contextmanager
def defined(server: ServerUnderTest, *versions: JSONObject, **spec: Any) -> Iterator[Foos]:
    """A definition with these versions in a separate group, served when the block begins, and gone when it ends."""
    foos = Foos(server, f"test-{secrets.token_hex(4)}.example.com")
    spec = {
        "group": foos.group,
        "scope": "Namespaced",
        "names": {"plural": "foos", "kind": "Foo"},
        "versions": list(versions),
        **spec,
    }
    metadata = {"name": f"foos.{foos.group}"}
    asyncio.run(
        _create(foos, {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata, "spec": spec})
    )
    try:
        yield foos
    finally:
        asyncio.run(foos.ask("DELETE", foos.path))


async def _create(foos: Foos, definition: JSONObject) -> None:
    code, answer = await foos.ask("POST", DEFINITIONS, definition)
    if code != 201:
        raise AssertionError(f"the definition is refused: {answer}")
    async with asyncio.timeout(30):
        for one in definition["spec"]["versions"]:
            while one["served"] and (await foos.ask("GET", f"/apis/{foos.group}/{one['name']}/foos"))[0] != 200:
                await asyncio.sleep(0.05)


async def redefine(foos: Foos, *versions: JSONObject) -> None:
    """Replace the present versions by others."""
    code, definition = await foos.ask("GET", foos.path)
    assert code == 200, definition
    definition["spec"]["versions"] = list(versions)
    code, answer = await foos.ask("PUT", foos.path, definition)
    assert code == 200, answer


def refusal(answer: Any) -> str:
    """What a refusal says."""
    assert isinstance(answer, Status), answer
    return answer.message or ""
