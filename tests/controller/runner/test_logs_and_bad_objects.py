"""Ids of reconciles in log records, and objects that do not fit their type."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from kubeloop import Model, Resource, custom_resource
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client
from kubeloop.controller import Controller, HandlerController, Manager, Result, on_create
from kubeloop.meta import ObjectMeta, Unstructured
from kubeloop.testing import HandlerServer

pytestmark = pytest.mark.embedded


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with HandlerServer() as server:
        yield server.client()


class Loud(Controller[ConfigMap], name="loud", workers=2):
    """Logs records, in the loop or in its own tasks."""

    def __init__(self) -> None:
        self.ended: asyncio.Queue[str] = asyncio.Queue()

    async def reconcile(self, config: ConfigMap) -> Result | None:
        self.log.warning("first")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._later())
        self.ended.put_nowait(config.metadata.name)
        return None

    async def _later(self) -> None:
        self.log.warning("second")


async def test_all_records_of_one_reconcile_share_an_id_that_no_other_has(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    controller = Loud()
    async with Manager(client, [controller]):
        for name in ("a", "b"):
            await client.create(ConfigMap(metadata=ObjectMeta(name=name)))
            assert await asyncio.wait_for(controller.ended.get(), 10) == name
    fields = [record.__dict__["kubeloop"] for record in caplog.records if record.name == "kubeloop.controller.loud"]
    assert [one["key"] for one in fields] == ["default/a", "default/a", "default/b", "default/b"]
    ids = [one["reconcile"] for one in fields]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert {(one["controller"], one["cluster"]) for one in fields} == {("loud", client.cluster)}


class GadgetSpec(Model):
    size: int = 0


@custom_resource("logs.example.com/v1", plural="gadgets")
class Gadget(Resource):
    spec: GadgetSpec


Loose = Unstructured.for_kind("logs.example.com/v1", "Gadget", plural="gadgets", namespaced=True)
Definition = Unstructured.for_kind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", plural="customresourcedefinitions", namespaced=False
)


def definition() -> Unstructured:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return Definition.from_dict(
        {
            "metadata": {"name": "gadgets.logs.example.com"},
            "spec": {
                "group": "logs.example.com",
                "scope": "Namespaced",
                "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
            },
        }
    )


class Strict(Controller[Gadget], name="strict"):
    """Takes only what fits."""

    def __init__(self) -> None:
        self.sizes: asyncio.Queue[int] = asyncio.Queue()

    async def reconcile(self, gadget: Gadget) -> None:
        self.sizes.put_nowait(gadget.spec.size)


class StrictHandlers(HandlerController[Gadget], name="strict"):
    """The same by a handler."""

    def __init__(self) -> None:
        self.sizes: asyncio.Queue[int] = asyncio.Queue()

    @on_create
    async def begin(self, gadget: Gadget) -> None:
        self.sizes.put_nowait(gadget.spec.size)


@pytest.mark.parametrize("kind", [Strict, StrictHandlers])
async def test_an_object_that_does_not_fit_its_type_is_named_and_not_tried_again_until_it_changes(
    client: Client, caplog: pytest.LogCaptureFixture, kind: type[Strict | StrictHandlers]
) -> None:
    caplog.set_level(logging.ERROR)
    controller = kind()
    await client.create(definition())
    async with Manager(client, [controller]) as manager:
        await client.create(Loose.from_dict({"metadata": {"name": "g"}, "spec": {"size": "large"}}))
        async with asyncio.timeout(10):
            while not manager.stats[0].counts.terminal_errors:
                await asyncio.sleep(0.001)
        assert (manager.stats[0].queue.delayed, controller.sizes.qsize()) == (0, 0)
        assert "strict default/g: it does not fit Gadget" in caplog.text
        await client.patch(Loose, "g", {"spec": {"size": 5}})
        assert await asyncio.wait_for(controller.sizes.get(), 10) == 5
