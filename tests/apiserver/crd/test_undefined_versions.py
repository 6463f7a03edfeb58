"""An object stored in a version that its definition no longer has causes an error. On both servers."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from kubeloop.meta.errors import ApiError
from tests.apiserver.ownership.conftest import APPLY, MERGE, Managers, Reply
from tests.apiserver.ownership.conftest import managers as managers

pytestmark = pytest.mark.server

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NUMBERS = itertools.count()


def version(name: str, *, storage: bool) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}}


class Stranded:
    """A kind whose object ``a`` was stored in v1, and whose definition now has v2 only."""

    def __init__(self, managers: Managers) -> None:
        self.group = f"stranded{os.getpid()}x{next(_NUMBERS)}.example.com"
        self.definition = f"{CRDS}/stranded.{self.group}"
        self.api = managers
        self.path = f"/apis/{self.group}/v2/namespaces/{{ns}}/stranded"
        self.why = f"request to convert CR from an invalid group/version: {self.group}/v1"

    async def create(self) -> None:
        names = {"plural": "stranded", "kind": "Stranded"}
        both = [version("v1", storage=True), version("v2", storage=False)]
        spec = {"group": self.group, "scope": "Namespaced", "names": names, "versions": both}
        head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"stranded.{self.group}"}}
        assert (await self.api("POST", CRDS, {**head, "spec": spec})).status == 201
        old = self.path.replace("/v2/", "/v1/")
        await self.until(lambda: self.api("GET", old), 200)
        body = {"apiVersion": f"{self.group}/v1", "kind": "Stranded", "metadata": {"name": "a"}, "spec": {"a": "1"}}
        assert (await self.api("POST", old, body)).status == 201

    async def strand(self) -> None:
        for versions in ([version("v1", storage=False), version("v2", storage=True)], [version("v2", storage=True)]):
            assert (await self.api.merge("x", self.definition, {"spec": {"versions": versions}})).status == 200
            assert (await self.api.merge("x", f"{self.definition}/status", {"status": {"storedVersions": ["v2"]}})).status == 200
        await self.until(lambda: self.api("GET", f"{self.path}/a"), 500)

    @staticmethod
    async def until(ask: Callable[[], Awaitable[Reply]], status: int) -> None:
        async with asyncio.timeout(20):
            while (await ask()).status != status:
                await asyncio.sleep(0.02)

    async def remove(self) -> None:
        """With its version back, for without it nothing may be deleted."""
        both = [version("v1", storage=False), version("v2", storage=True)]
        await self.api.merge("x", self.definition, {"spec": {"versions": both}})
        await self.api("DELETE", self.definition)
        await self.until(lambda: self.api("GET", self.definition), 404)


@pytest.fixture
async def stranded(managers: Managers) -> AsyncIterator[Stranded]:
    found = Stranded(managers)
    await found.create()
    await found.strand()
    yield found
    await found.remove()


def _body(stranded: Stranded, **metadata: str) -> dict[str, Any]:
    return {"apiVersion": f"{stranded.group}/v2", "kind": "Stranded", "metadata": {"name": "a", **metadata}, "spec": {"a": "2"}}


async def test_the_object_can_neither_be_read_nor_changed_nor_deleted(stranded: Stranded) -> None:
    one = f"{stranded.path}/a"
    replies = {
        "a read": await stranded.api("GET", one),
        "a limited list": await stranded.api("GET", f"{stranded.path}?limit=1"),
        "a limited list at any version": await stranded.api("GET", f"{stranded.path}?limit=1&resourceVersion=0"),
        "a patch": await stranded.api.merge("x", one, {"spec": {"a": "3"}}),
        "an apply": await stranded.api("PATCH", f"{one}?fieldManager=x", _body(stranded), content=APPLY),
        "an update": await stranded.api("PUT", one, _body(stranded, resourceVersion="5")),
        "a deletion": await stranded.api("DELETE", one),
        "a deletion of all": await stranded.api("DELETE", stranded.path),
    }
    assert {name: (reply.status, reply.message) for name, reply in replies.items()} == dict.fromkeys(replies, (500, stranded.why))


async def test_lists_and_watches_wait_for_the_version(stranded: Stranded) -> None:
    why = f"storage is (re)initializing: failed to list {stranded.group}/v2, Kind=Stranded: {stranded.why}"
    queries: list[dict[str, str]] = [
        {},
        {"resourceVersion": "0"},
        {"watch": "1"},
        {"watch": "1", "resourceVersion": "1"},
    ]
    path = stranded.path.replace("{ns}", stranded.api.namespace)
    for query in queries:
        for _ in range(100):
            with pytest.raises(ApiError) as refused:
                async with stranded.api.client.transport.stream("GET", path, query=query, retry=False):
                    pass
            if refused.value.status.message != "storage is (re)initializing":
                break
            await asyncio.sleep(0.1)  # a real server's cache has not failed to list yet
        assert (query, refused.value.status.code, refused.value.status.message) == (query, 429, why)


async def test_other_objects_are_served(stranded: Stranded) -> None:
    body = _body(stranded) | {"metadata": {"name": "b"}}
    assert (await stranded.api("POST", stranded.path, body)).status == 201
    assert (await stranded.api("GET", f"{stranded.path}/b")).status == 200
    assert (await stranded.api("DELETE", f"{stranded.path}/b")).status == 200
    assert (await stranded.api("POST", stranded.path, _body(stranded))).status == 409


async def test_all_is_served_again_when_the_version_is_back(stranded: Stranded) -> None:
    both = [version("v1", storage=False), version("v2", storage=True)]
    assert (await stranded.api("PATCH", stranded.definition, {"spec": {"versions": both}}, content=MERGE)).status == 200
    await stranded.until(lambda: stranded.api("GET", stranded.path), 200)
    assert (await stranded.api("GET", f"{stranded.path}/a")).body["spec"] == {"a": "1"}


async def test_the_definition_stays_while_its_objects_cannot_be_listed(stranded: Stranded) -> None:
    await stranded.api("DELETE", stranded.definition)
    async with asyncio.timeout(20):
        while True:
            conditions = (await stranded.api("GET", stranded.definition)).body["status"]["conditions"]
            (terminating,) = [one for one in conditions if one["type"] == "Terminating"]
            if terminating["reason"] == "InstanceDeletionFailed":
                break
            await asyncio.sleep(0.02)
    why = f"could not list instances: storage is (re)initializing: failed to list {stranded.group}/v2, Kind=Stranded: {stranded.why}"
    assert (terminating["status"], terminating["message"]) == ("True", why)
