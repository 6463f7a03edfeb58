"""Informers that keep a part of each object, against an API server: the embedded one, and a real one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerFactory
from kubeloop.cache.blobs.retention import Retention
from kubeloop.client import Client
from kubeloop.codec import document_of
from kubeloop.meta import IncompleteObject, ObjectMeta, PartialObject, Unstructured
from tests.cache.source import until

pytestmark = pytest.mark.server

Tree = dict[str, Any]
UntypedConfigMap = Unstructured.for_kind("v1", "ConfigMap", plural="configmaps", namespaced=True)


async def make(client: Client, name: str = "a") -> ConfigMap:
    metadata = ObjectMeta(name=name, labels={"app": "web"}, annotations={"note": "x"}, finalizers=[])
    return await client.create(ConfigMap(metadata=metadata, data={"k": "1", "big": "x" * 500}))


async def managers(client: Client, name: str = "a") -> list[str]:
    return [entry.manager for entry in (await client.get(ConfigMap, name)).metadata.managed_fields]


async def test_objects_without_their_managed_fields_are_updated_and_the_server_keeps_them(client: Client, namespace: str) -> None:
    await make(client)
    before = await managers(client)
    async with InformerFactory(client) as informers:
        maps = informers.for_kind(ConfigMap, namespace=namespace, label_selector="app=web")
        await informers.wait_synced(30)
        for turn in range(2):  # as listed, and as watched
            found = maps.lister.get("a")
            assert found is not None
            assert found.metadata.managed_fields == []
            assert b"managedFields" not in (document_of(found) or b"")
            found.data["k"] = f"changed {turn}"
            written = await client.update(found)
            assert written.data["k"] == f"changed {turn}"
            await until(lambda version=written.metadata.resource_version: maps.lister.get("a").metadata.resource_version == version)  # type: ignore[union-attr]  # it is there
        assert maps.lister.get("a").data["k"] == "changed 1"  # type: ignore[union-attr]  # it is there
    assert await managers(client) == before


async def test_managed_fields_are_kept_on_request_and_that_is_another_informer(client: Client, namespace: str) -> None:
    await make(client)
    async with InformerFactory(client) as informers:
        lean = informers.for_kind(ConfigMap, namespace=namespace)
        full = informers.for_kind(ConfigMap, namespace=namespace, managed_fields=True)
        assert lean is not full
        assert informers.for_kind(ConfigMap, namespace=namespace) is lean
        await informers.wait_synced(30)
        assert full.lister.get("a") == await client.get(ConfigMap, "a")
        assert lean.lister.get("a").metadata.managed_fields == []  # type: ignore[union-attr]  # it is there


async def test_of_metadata_alone_that_is_all_that_the_server_sends_in_lists_and_watches(client: Client, namespace: str) -> None:
    await make(client)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    sent = await client.transport.request("GET", path, accept=Retention(metadata_only=True).accept_list)
    assert msgspec.json.decode(sent.body)["kind"] == "PartialObjectMetadataList"
    events: list[str] = []
    async with InformerFactory(client) as informers:
        maps = informers.metadata(
            ConfigMap, namespace=namespace, label_selector="app=web", indexes={"note": 'metadata.annotations["note"]'}
        )
        maps.on_event(
            added=lambda event: events.append(f"ADDED {event.key.name}"),
            updated=lambda event: events.append(f"MODIFIED {event.object.metadata.annotations['note']}"),
        )
        await informers.wait_synced(30)
        (found,) = maps.lister.list(label_selector="app=web")
        assert isinstance(found, PartialObject)
        assert (found.metadata.name, found.metadata.annotations, found.metadata.managed_fields) == ("a", {"note": "x"}, [])
        await client.patch(ConfigMap, "a", {"metadata": {"annotations": {"note": "y"}}})
        await make(client, "b")
        await until(lambda: len(events) == 3)
        assert events == ["ADDED a", "MODIFIED y", "ADDED b"]
        assert [each.metadata.name for each in maps.lister.by_index("note", "y")] == ["a"]
        assert b'"data"' not in maps.lister.heads()[0].document()
        with pytest.raises(IncompleteObject, match=r"only the metadata.*Get the object"):
            await client.update(found)


@pytest.mark.parametrize("kind", [ConfigMap, UntypedConfigMap], ids=["a typed kind", "a kind known by name only"])
async def test_only_the_fields_asked_for_are_stored_and_an_update_with_the_rest_missing_is_refused(
    client: Client, namespace: str, kind: type[ConfigMap]
) -> None:
    await make(client)
    async with InformerFactory(client) as informers:
        maps = informers.for_kind(kind, namespace=namespace, label_selector="app=web", fields=["data.k"], indexes={"k": "data.k"})
        await informers.wait_synced(30)
        await client.patch(ConfigMap, "a", {"data": {"k": "2"}})
        await until(lambda: bool(maps.lister.by_index("k", "2")))
        (found,) = maps.lister.by_index("k", "2")
        stored = msgspec.json.decode(maps.lister.heads()[0].document())
        assert stored["data"] == {"k": "2"}
        assert set(stored["metadata"]) == {"name", "namespace", "uid", "resourceVersion", "labels"}
        found.metadata.labels["more"] = "x"
        with pytest.raises(IncompleteObject, match=r"its informer keeps only data\.k .*Get the object and change that, or send a patch"):
            await client.update(found)


async def test_a_transform_runs_once_for_each_state_also_while_the_first_state_streams_in(client: Client, namespace: str) -> None:
    """[C42: there five calls for these three states, hence its demand that transforms be idempotent]"""
    calls: list[str] = []
    await make(client, "a")
    await make(client, "b")
    # Shown as an own write, a state is made once more.
    async with InformerFactory(client, read_your_writes=False) as informers:
        maps = informers.for_kind(
            ConfigMap, namespace=namespace, label_selector="app=web", transform=lambda tree: calls.append(tree["metadata"]["name"])
        )
        await informers.wait_synced(30)
        assert sorted(calls) == ["a", "b"]
        await make(client, "c")
        await until(lambda: maps.lister.get("c") is not None)
        assert calls[2:] == ["c"]


async def test_what_a_transform_made_is_what_store_and_handlers_see_from_the_first_event_on(client: Client, namespace: str) -> None:
    """[E64]"""

    def shorten(tree: Tree) -> None:
        tree["data"] = {name: len(value) for name, value in tree.get("data", {}).items()}
        tree["data"] = {name: str(size) for name, size in tree["data"].items()}

    await make(client)
    seen: list[dict[str, str]] = []
    async with InformerFactory(client) as informers:
        maps = informers.for_kind(ConfigMap, namespace=namespace, label_selector="app=web", transform=shorten, indexes={"big": "data.big"})
        maps.on_event(added=lambda event: seen.append(event.object.data), updated=lambda event: seen.append(event.object.data))
        await informers.wait_synced(30)
        await client.patch(ConfigMap, "a", {"data": {"k": "22"}})
        await until(lambda: len(seen) == 2)
        assert seen == [{"k": "1", "big": "500"}, {"k": "2", "big": "500"}]
        (found,) = maps.lister.by_index("big", "500")
        with pytest.raises(IncompleteObject, match="transform"):
            await client.update(found)


async def test_objects_of_an_unstructured_kind_without_managed_fields_are_updated_too(client: Client, namespace: str) -> None:
    await make(client)
    before = await managers(client)
    async with InformerFactory(client) as informers:
        maps = informers.for_kind(UntypedConfigMap, namespace=namespace)
        await informers.wait_synced(30)
        found = maps.lister.get("a")
        assert found is not None
        assert "managedFields" not in found["metadata"]
        found["data"]["k"] = "2"
        await client.update(found)
    live = await client.get(ConfigMap, "a")
    assert live.data["k"] == "2"
    assert await managers(client) == before
