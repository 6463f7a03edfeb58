"""Objects as servers do not usually send them: the informer takes what can be taken, and goes on."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import Unstructured
from kubeloop.timing import FakeClock
from tests.cache.handlers.test_handlers import everything, informers_of
from tests.cache.source import Source, until


def config(name: str | None, version: str | None = "50", **metadata: Any) -> dict[str, Any]:
    given = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": version, **metadata}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {key: value for key, value in given.items() if value is not None}}


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"kind": "ConfigMap", "apiVersion": "v1", "metadata": None}, id="null metadata"),
        pytest.param({"kind": "ConfigMap", "apiVersion": "v1"}, id="no metadata"),
        pytest.param({"kind": "ConfigMap", "apiVersion": "v1", "metadata": []}, id="metadata that is a list"),
        pytest.param({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": None, "resourceVersion": "51"}}, id="a null name"),
        pytest.param({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "51"}}, id="a table"),
    ],
)
async def test_an_event_whose_object_has_no_name_is_skipped_and_the_next_one_counts(
    source: Source, api: Client, clock: FakeClock, broken: dict[str, Any]
) -> None:
    """[D54]"""
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        seen = everything(maps)
        await until(lambda: source.watches == 1)
        for kind in ("ADDED", "MODIFIED", "DELETED"):
            source.send({"type": kind, "object": broken})
        source.send({"type": "ADDED", "object": config("a", "52")})
        await until(lambda: seen.lines == ["ADDED a"])
        assert maps.resource_version == "52"


async def test_odd_items_of_a_list_are_skipped_or_kept_as_far_as_they_can_be_named(source: Source, api: Client, clock: FakeClock) -> None:
    source.objects = {
        "a": {"metadata": None},
        "b": {},
        "c": config("c", None),
        "d": config("d", uid=None, labels=None, ownerReferences=None),
        "e": config("e", labels={"x": 1}, generation="3", ownerReferences="none"),
    }
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, indexes={"x": "metadata.labels.x"}, namespace=ALL_NAMESPACES)
        await informers.wait_synced()
        assert [head.name for head in maps.lister.heads()] == ["c", "d", "e"]
        assert maps.lister.head("d", "default").labels == {}  # type: ignore[union-attr]  # it is there
        assert maps.lister.head("e", "default").owner_references == ()  # type: ignore[union-attr]  # it is there


async def test_handlers_get_all_changes_of_an_object_without_versions(source: Source, api: Client, clock: FakeClock) -> None:
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        seen = everything(maps)
        await until(lambda: source.watches == 1)
        source.send({"type": "ADDED", "object": config("a", None) | {"data": {"k": "1"}}})
        source.send({"type": "MODIFIED", "object": config("a", None) | {"data": {"k": "2"}}})
        await until(lambda: len(seen.events) == 2)
        assert [event.object.data for event in seen.events] == [{"k": "1"}, {"k": "2"}]
        source.objects["a"] = config("a", None) | {"data": {"k": "3"}}
        source.error_event({"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "x"})
        await until(lambda: clock.waiting > 0 and source.watches == 0)
        await clock.advance(3)
        await until(lambda: len(seen.events) == 3)
        assert maps.lister.get("a", "default").data == {"k": "3"}  # type: ignore[union-attr]  # it is there


async def test_handlers_get_an_object_that_is_sent_twice_once(source: Source, api: Client, clock: FakeClock) -> None:
    async with informers_of(api, clock) as informers:
        seen = everything(informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES))
        await until(lambda: source.watches == 1)
        for kind in ("ADDED", "ADDED", "MODIFIED"):
            source.send({"type": kind, "object": config("a", "20")})
        source.send({"type": "DELETED", "object": config("a", "21")})
        source.send({"type": "ADDED", "object": config("b", "22")})
        await until(lambda: seen.lines[-1:] == ["ADDED b"])
        assert seen.lines == ["ADDED a", "DELETED a", "ADDED b"]


async def test_an_object_recreated_while_the_watch_runs_is_a_deletion_and_an_addition(
    source: Source, api: Client, clock: FakeClock
) -> None:
    async with informers_of(api, clock) as informers:
        seen = everything(informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES))
        await until(lambda: source.watches == 1)
        source.put("a")
        source.delete("a")
        source.put("a")
        await until(lambda: len(seen.events) == 3)
        assert seen.lines == ["ADDED a", "DELETED a", "ADDED a"]
        assert seen.events[0].head.uid != seen.events[2].head.uid


async def test_large_objects_and_text_of_every_script_come_through_unchanged(source: Source, api: Client, clock: FakeClock) -> None:
    big = "Ω" * 500_000
    source.put("größe-世界", blob=big, label_été="naïve-ß", emoji='🦜\u0000\u2028"\\')
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES, indexes={"script": 'metadata.labels["été"]'})
        seen = everything(maps)
        await informers.wait_synced()
        source.put("größe-世界", blob=big + "!", label_été="naïve-ß", emoji='🦜\u0000\u2028"\\')
        await until(lambda: len(seen.events) == 2)
        (found,) = maps.lister.by_index("script", "naïve-ß")
        assert found.metadata.name == "größe-世界"
        assert found.data == {"blob": big + "!", "emoji": '🦜\u0000\u2028"\\'}
        assert [one.metadata.labels for one in maps.lister.list(label_selector={"été": "naïve-ß"})] == [{"été": "naïve-ß"}]


async def test_kinds_that_are_known_by_name_only_are_cached_too(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a", k="1")
    kind = Unstructured.for_kind("v1", "ConfigMap", plural="configmaps", namespaced=True)
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(kind, namespace=ALL_NAMESPACES)
        await informers.wait_synced()
        (found,) = maps.lister.list()
        assert found["data"] == {"k": "1"}
        assert found.metadata.name == "a"
