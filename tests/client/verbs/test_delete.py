"""Deletions, with everything that can be said about them."""

from __future__ import annotations

import pytest

from kubeloop.api.core.v1 import ConfigMap, Container, Pod, PodSpec
from kubeloop.client import Client, DeleteOptions, ListOptions, ObjectList
from kubeloop.meta import Conflict, NotFound, ObjectMeta

pytestmark = pytest.mark.server


def config_map(name: str, **labels: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels=labels))


def names(page: ObjectList[ConfigMap]) -> list[str]:
    return [one.metadata.name for one in page]


async def test_a_dry_run_deletes_nothing(client: Client, namespace: str) -> None:
    await client.create(config_map("a"))
    await client.delete(ConfigMap, "a", options=DeleteOptions(dry_run=True))
    assert (await client.get(ConfigMap, "a")).metadata.name == "a"


@pytest.mark.parametrize(
    ("propagation", "finalizers"),
    [
        pytest.param("Foreground", ["foregroundDeletion"], id="dependents first"),
        pytest.param("Orphan", ["orphan"], id="dependents stay"),
    ],
)
async def test_propagation_is_a_finalizer_for_the_garbage_collector(
    client: Client, namespace: str, propagation: str, finalizers: list[str]
) -> None:
    held = config_map("a")
    held.metadata.finalizers = ["example.com/hold"]
    await client.create(held)
    going = await client.delete(ConfigMap, "a", propagation_policy=propagation)  # type: ignore[call-overload]  # a text of the table
    assert not going.gone
    assert set(finalizers) <= set(going.object.metadata.finalizers)
    await client.patch(ConfigMap, "a", {"metadata": {"finalizers": None}})


async def test_a_grace_period_is_the_pods_until_it_is_shortened(client: Client, namespace: str) -> None:
    await client.create(Pod(metadata=ObjectMeta(name="p"), spec=PodSpec(node_name="n1", containers=[Container(name="c", image="i")])))
    going = await client.delete(Pod, "p", grace_period_seconds=30)
    assert (going.object.metadata.deletion_grace_period_seconds, going.gone) == (30, False)  # type: ignore[union-attr]  # it is there
    going = await client.delete(Pod, "p", grace_period_seconds=5)
    assert (going.object.metadata.deletion_grace_period_seconds, going.gone) == (5, False)  # type: ignore[union-attr]  # it is there
    assert not (await client.delete(Pod, "p", grace_period_seconds=0, options=DeleteOptions(dry_run=True))).gone
    assert (await client.delete(Pod, "p", grace_period_seconds=0)).gone
    with pytest.raises(NotFound):
        await client.get(Pod, "p")


async def test_an_object_that_was_changed_since_is_not_deleted_if_its_version_is_demanded(client: Client, namespace: str) -> None:
    old = await client.create(config_map("a"))
    await client.patch(ConfigMap, "a", {"data": {"x": "1"}})
    with pytest.raises(Conflict):
        await client.delete(old, options=DeleteOptions(resource_version=old.metadata.resource_version))
    await client.delete(old)


async def test_an_object_that_can_be_read_is_deleted_as_usual_by_a_server_that_shall_ignore_read_errors(
    client: Client, namespace: str
) -> None:
    await client.create(config_map("a"))
    await client.delete(ConfigMap, "a", options=DeleteOptions(ignore_store_read_error=True))
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a")


class TestCollections:
    @pytest.fixture(autouse=True)
    async def _objects(self, client: Client, namespace: str) -> None:
        for name in ("a", "b", "c"):
            await client.create(config_map(name, app="web"))
        await client.create(config_map("other", app="db"))

    async def test_a_dry_run_deletes_nothing(self, client: Client, namespace: str) -> None:
        await client.delete_collection(ConfigMap, options=DeleteOptions(dry_run=True))
        assert {"a", "b", "c", "other"} <= set(names(await client.list(ConfigMap, namespace=namespace)))

    async def test_by_a_field(self, client: Client, namespace: str) -> None:
        await client.delete_collection(ConfigMap, field_selector="metadata.name=b")
        assert names(await client.list(ConfigMap, namespace=namespace, label_selector="app")) == ["a", "c", "other"]

    async def test_the_options_of_a_list_are_options_of_a_deletion_too(self, client: Client, namespace: str) -> None:
        page = await client.list_page(ConfigMap, label_selector="app=web", limit=1, namespace=namespace)
        options = ListOptions(
            label_selector="app=web", limit=0, resource_version=page.resource_version, resource_version_match="NotOlderThan"
        )
        await client.delete_collection(ConfigMap, list_options=options)
        assert names(await client.list(ConfigMap, namespace=namespace, label_selector="app")) == ["other"]

    async def test_finalizers_hold_their_objects(self, client: Client, namespace: str) -> None:
        await client.patch(ConfigMap, "a", {"metadata": {"finalizers": ["example.com/hold"]}})
        assert isinstance(await client.delete_collection(ConfigMap, label_selector="app=web", grace_period_seconds=0), ObjectList)
        assert names(await client.list(ConfigMap, namespace=namespace, label_selector="app=web")) == ["a"]
        await client.patch(ConfigMap, "a", {"metadata": {"finalizers": None}})

    async def test_selectors_are_given_once(self, client: Client) -> None:
        with pytest.raises(ValueError, match="either as keywords or in list_options"):
            await client.delete_collection(ConfigMap, label_selector="a", list_options=ListOptions(label_selector="b"))
