"""Views of a client: of one namespace, or with options that hold for every write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kubeloop.api.core.v1 import ConfigMap, Namespace
from kubeloop.client import Client, DeleteOptions, Watch, WriteOptions
from kubeloop.meta import BadRequest, NotFound, ObjectMeta, PartialObject, Unstructured

pytestmark = pytest.mark.server


def config_map(name: str = "a", namespace: str = "") -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels={"app": "web"}))


class TestOfOneNamespace:
    async def test_lists_and_watches_are_of_it_too(self, client: Client, namespace: str) -> None:
        view = client.in_namespace(namespace)
        await view.create(config_map())
        assert [one.metadata.namespace for one in await view.list(ConfigMap, label_selector="app=web")] == [namespace]
        assert [one.metadata.name async for one in view.list_metadata(ConfigMap, label_selector="app=web")] == ["a"]
        async with asyncio.timeout(20), view.watch(ConfigMap, label_selector="app=web") as events:
            async for event in events:
                assert event.object.metadata.namespace == namespace
                break

    async def test_another_namespace_is_refused_before_anything_is_sent(self, client: Client, namespace: str) -> None:
        view = client.in_namespace(namespace)
        for call in (
            view.get(ConfigMap, "a", namespace="shop"),
            view.create(config_map(namespace="shop")),
            view.list(ConfigMap, namespace="shop"),
            view.delete(ConfigMap, "a", namespace="shop"),
        ):
            with pytest.raises(ValueError, match=f'namespace "shop" is not that of this client, which is for "{namespace}" only'):
                await call

    async def test_cluster_scoped_kinds_are_as_ever(self, client: Client, namespace: str) -> None:
        assert (await client.in_namespace(namespace).get(Namespace, namespace)).metadata.name == namespace

    async def test_closing_it_closes_nothing(self, client: Client, namespace: str) -> None:
        async with client.in_namespace(namespace) as view:
            await view.create(config_map())
        assert (await client.get(ConfigMap, "a")).metadata.name == "a"

    def test_a_name_that_cannot_be_one_is_refused(self, client: Client) -> None:
        with pytest.raises(ValueError, match='namespace "Not Valid!": a lowercase RFC 1123 label must consist'):
            client.in_namespace("Not Valid!")


class TestWithOptions:
    async def test_every_write_is_only_tried(self, client: Client, namespace: str) -> None:
        dry = client.with_options(dry_run=True)
        await dry.create(config_map("b"))
        with pytest.raises(NotFound):
            await client.get(ConfigMap, "b")
        created = await client.create(config_map())
        created.data["x"] = "1"
        await dry.update(created)
        await dry.patch(ConfigMap, "a", {"data": {"x": "1"}}, options=WriteOptions(field_manager="ops"))
        await dry.apply(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1"}), field_manager="ops")
        await dry.delete(ConfigMap, "a", options=DeleteOptions(propagation_policy="Background"))
        await dry.delete_collection(ConfigMap, label_selector="app=web")
        moved = await dry.upgrade_ownership(ConfigMap, "a", updaters=[created.metadata.managed_fields[0].manager], field_manager="ops")
        assert moved.metadata.managed_fields[0].operation == "Apply"
        assert (await client.get(ConfigMap, "a")).metadata.managed_fields[0].operation == "Update"
        assert (await client.get(ConfigMap, "a")).data == {}

    async def test_one_field_manager_for_all(self, client: Client, namespace: str) -> None:
        ops = client.with_options(field_manager="ops")
        created = await ops.create(ConfigMap(metadata=ObjectMeta(name="a"), data={"x": "1"}))
        applied = await ops.apply(ConfigMap(metadata=ObjectMeta(name="a"), data={"y": "1"}))
        assert {one.manager for one in [*created.metadata.managed_fields, *applied.metadata.managed_fields]} == {"ops"}
        assert (await ops.get_owned(ConfigMap, "a")).data == {"y": "1"}
        other = await ops.patch(ConfigMap, "a", {"data": {"z": "1"}}, options=WriteOptions(field_manager="dev"))
        assert "dev" in {one.manager for one in other.metadata.managed_fields}

    async def test_validation_and_a_namespace_go_together(self, client: Client, namespace: str) -> None:
        strict = client.in_namespace(namespace).with_options(field_validation="Strict")
        odd = Unstructured.for_kind("v1", "ConfigMap").from_dict({"metadata": {"name": "a"}, "dta": {}})
        with pytest.raises(BadRequest, match='unknown field "dta"'):
            await strict.create(odd)


async def entered(watch: Watch[ConfigMap] | Watch[PartialObject]) -> None:
    async with watch:
        pass


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda client: client.list(ConfigMap, namespace="Not Valid!"), id="a list"),
        pytest.param(lambda client: client.list_metadata(ConfigMap, namespace="Not Valid!"), id="a list of metadata"),
        pytest.param(lambda client: entered(client.watch(ConfigMap, namespace="Not Valid!")), id="a watch"),
        pytest.param(lambda client: entered(client.watch_metadata(ConfigMap, namespace="Not Valid!")), id="a watch of metadata"),
        pytest.param(lambda client: client.get(ConfigMap, "a", namespace="Not Valid!"), id="a get"),
        pytest.param(lambda client: client.create(config_map(namespace="Not Valid!")), id="an object's own"),
    ],
)
async def test_a_namespace_that_cannot_be_one_is_refused_before_it_is_sent(
    client: Client, ask: Callable[[Client], Awaitable[object]]
) -> None:
    with pytest.raises(ValueError, match=r'^namespace "Not Valid!": a lowercase RFC 1123 label must consist of lower case'):
        await ask(client)
