"""Incomplete bodies of custom resources and definitions, on both servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.apiserver.ownership.conftest import MERGE, Managers

pytestmark = pytest.mark.server

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "bodies.kubeloop.example.com"
THINGS = f"/apis/{GROUP}/v1/namespaces/{{ns}}/things"


@pytest.fixture
async def things(managers: Managers) -> AsyncIterator[Managers]:
    """A definition that is served."""
    spec = {"type": "object", "properties": {"size": {"type": "integer"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "things", "kind": "Thing"}
    definition: dict[str, Any] = {
        "metadata": {"name": f"things.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    made = await managers("POST", DEFINITIONS, definition)
    assert made.status == 201, made.body
    async with asyncio.timeout(20):
        while (await managers("GET", THINGS)).status != 200:
            await asyncio.sleep(0.05)
    yield managers
    await managers("DELETE", f"{DEFINITIONS}/things.{GROUP}")
    async with asyncio.timeout(20):
        while (await managers("GET", f"{DEFINITIONS}/things.{GROUP}")).status != 404:
            await asyncio.sleep(0.05)


async def test_nothing_is_left_of_an_empty_conversion_webhook(things: Managers) -> None:
    path = f"{DEFINITIONS}/things.{GROUP}"
    before = await things("GET", path)
    after = await things("PATCH", path, {"spec": {"conversion": {"strategy": "None", "webhook": {}}}}, content=MERGE)
    assert after.body["spec"]["conversion"] == {"strategy": "None"}
    assert after.body["metadata"]["generation"] == before.body["metadata"]["generation"]
