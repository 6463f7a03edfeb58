"""Owners of a custom resource's fields in a version that another version does not know in full. On both servers."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from tests.apiserver.ownership.conftest import Managers, Reply

pytestmark = pytest.mark.server

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_TEXT = {"type": "string"}
#: The real server writes definitions into effect a moment after its answer: kinds are not shared by tests.
_NUMBERS = itertools.count()


def version(name: str, *fields: str, **more: Any) -> dict[str, Any]:
    spec = {"type": "object", "properties": dict.fromkeys(fields, _TEXT)}
    schema = {"type": "object", "properties": {"spec": spec}}
    return {"name": name, "served": True, "storage": name == "v2", "schema": {"openAPIV3Schema": schema}, **more}


class Cars:
    """A kind whose version v1 has a size and a color, and whose version v2 has the fields that a test says."""

    def __init__(self, managers: Managers) -> None:
        self.group = f"cars{os.getpid()}x{next(_NUMBERS)}.example.com"
        self._definition = f"{CRDS}/cars.{self.group}"
        self._managers = managers

    @staticmethod
    def versions(*v2: str, stored: str = "v1") -> list[dict[str, Any]]:
        """Version v1 knows all fields."""
        return [version("v1", "size", "color", storage=stored == "v1"), version("v2", *v2, storage=stored == "v2")]

    async def define(self, *v2: str, stored: str = "v1") -> None:
        names = {"plural": "cars", "kind": "Car"}
        spec = {"group": self.group, "scope": "Namespaced", "names": names, "versions": self.versions(*v2, stored=stored)}
        head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"cars.{self.group}"}}
        assert (await self._managers("POST", CRDS, {**head, "spec": spec})).status == 201
        for api in ("v1", "v2"):
            await self.until(partial(self._managers, "GET", self.path(api).removesuffix("/a")), 200)

    async def redefine(self, versions: list[dict[str, Any]]) -> None:
        """Without a trace of versions in which objects were stored."""
        stored = {"status": {"storedVersions": [next(one["name"] for one in versions if one["storage"])]}}
        if len(versions) == 1:
            assert (await self._managers.merge("x", f"{self._definition}/status", stored)).status == 200
        assert (await self._managers.merge("x", self._definition, {"spec": {"versions": versions}})).status == 200

    @staticmethod
    async def until(ask: Callable[[], Awaitable[Reply]], status: int) -> None:
        async with asyncio.timeout(20):
            while (await ask()).status != status:
                await asyncio.sleep(0.02)

    async def until_read(self, api: str, **spec: str) -> None:
        """A changed definition is in effect a moment later."""
        async with asyncio.timeout(20):
            while (await self.read(api)).body["spec"] != spec:
                await asyncio.sleep(0.02)

    async def remove(self) -> None:
        await self._managers("DELETE", self._definition)

    def path(self, api: str) -> str:
        return f"/apis/{self.group}/{api}/namespaces/{{ns}}/cars/a"

    async def read(self, api: str) -> Reply:
        return await self._managers("GET", self.path(api))

    async def apply(self, manager: str, api: str, *, force: bool = False, **spec: str) -> Reply:
        car = {"apiVersion": f"{self.group}/{api}", "kind": "Car", "metadata": {"name": "a"}, "spec": spec}
        return await self._managers.apply(manager, self.path(api), car, force=force)

    async def merge(self, manager: str, api: str, **spec: str) -> Reply:
        return await self._managers.merge(manager, self.path(api), {"spec": spec})


@pytest.fixture
async def cars(managers: Managers) -> AsyncIterator[Cars]:
    found = Cars(managers)
    yield found
    await found.remove()


async def test_the_owner_of_a_field_that_a_write_in_another_version_drops_still_owns_it(cars: Cars) -> None:
    await cars.define("size")
    await cars.apply("one", "v1", size="1", color="red")
    await cars.merge("two", "v2", size="2")
    assert (await cars.read("v1")).body["spec"] == {"size": "2"}
    assert (await cars.read("v1")).owners == {"Apply one": [".spec.color"], "Update two": [".spec.size"]}


async def test_an_apply_fails_that_says_a_field_which_the_version_of_another_owner_lacks(cars: Cars) -> None:
    await cars.define("size")
    await cars.apply("one", "v1", size="1", color="red")
    await cars.merge("two", "v2", size="2")
    refused = await cars.apply("one", "v1", size="2", color="red")
    why = "failed to prune fields: failed add back owned items: failed to convert merged object at version"
    assert (refused.status, refused.message) == (500, f"{why} {cars.group}/v2: .spec.color: field not declared in schema")


async def test_the_stored_object_does_not_fit_the_version_of_another_owner(cars: Cars) -> None:
    await cars.define("size")
    assert (await cars.apply("two", "v2", size="1")).status == 201
    updated = await cars.merge("one", "v1", color="red")
    assert (updated.status, updated.owners) == (200, {}), "the new object does not fit the version of its owner"

    await cars.redefine(cars.versions("size", "color"))
    await cars.until_read("v2", size="1", color="red")
    assert (await cars.apply("two", "v2", size="1")).owners.keys() == {"Apply two", "Update before-first-apply"}
    await cars.redefine(cars.versions("size"))
    await cars.until_read("v2", size="1")
    refused = await cars.apply("one", "v1", color="blue")
    assert (refused.status, refused.message) == (500, ".spec.color: field not declared in schema")
    updated = await cars.merge("one", "v1", color="blue")
    assert (updated.status, updated.owners) == (200, {})


async def test_owners_in_a_version_that_is_not_served_still_count(cars: Cars) -> None:
    await cars.define("size", "color")
    await cars.apply("one", "v1", size="1", color="red")
    await cars.redefine([version("v1", "size", "color", served=False), version("v2", "size", "color")])
    await cars.until(lambda: cars.read("v1"), 404)
    refused = await cars.apply("two", "v2", size="2")
    assert refused.causes == [(".spec.size", 'conflict with "one"')]
    assert (await cars.merge("two", "v2", size="2")).owners == {"Apply one": [".spec.color"], "Update two": [".spec.size"]}


async def test_an_apply_fails_and_an_update_forgets_owners_if_an_owner_wrote_in_a_version_that_is_gone(cars: Cars) -> None:
    await cars.define("size", "color", stored="v2")
    await cars.apply("one", "v1", size="1")
    await cars.redefine([version("v2", "size", "color")])
    await cars.until(lambda: cars.read("v1"), 404)
    refused = await cars.apply("two", "v2", color="red")
    assert (refused.status, refused.message) == (500, f"request to convert CR to an invalid group/version: {cars.group}/v1")
    updated = await cars.merge("two", "v2", color="red")
    assert (updated.status, updated.owners) == (200, {})
