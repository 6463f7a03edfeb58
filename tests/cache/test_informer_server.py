"""Informers against an API server: the embedded one, and a real one."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.api.core.v1 import ConfigMap, Pod
from kubeloop.cache import Informer, InformerEvent, InformerFactory
from kubeloop.client import Client
from kubeloop.codec import decode
from kubeloop.meta import DeadlineError, NotFound, ObjectMeta, Unstructured
from tests.cache.source import until

pytestmark = pytest.mark.server


class Seen:
    def __init__(self) -> None:
        self.events: list[InformerEvent[ConfigMap]] = []

    def __call__(self, event: InformerEvent[ConfigMap]) -> None:
        self.events.append(event)

    @property
    def lines(self) -> list[str]:
        return [f"{'initial ' if event.initial else ''}{event.type.value} {event.key.name}" for event in self.events]


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels=labels or {}), data=data)


@asynccontextmanager
async def informed(client: Client, namespace: str, **options: object) -> AsyncIterator[tuple[Informer[ConfigMap], Seen]]:
    seen = Seen()
    async with InformerFactory(client) as informers:
        maps = informers.for_kind(ConfigMap, namespace=namespace, managed_fields=True, **options)  # type: ignore[arg-type]  # options are of's own
        registration = maps.on_event(added=seen, updated=seen, deleted=seen)
        await informers.wait_synced(30)
        await registration.wait_synced(30)
        # A real control plane puts its root certificates into every namespace.
        seen.events[:] = [event for event in seen.events if event.key.name != "kube-root-ca.crt"]
        yield maps, seen


async def test_present_objects_come_first_then_every_change_in_order(client: Client, namespace: str) -> None:
    await client.create(config_map("a", k="1"))
    async with informed(client, namespace) as (maps, seen):
        assert seen.lines == ["initial ADDED a"]
        created = await client.create(config_map("b"))
        created.data["k"] = "2"
        updated = await client.update(created)
        await client.delete(ConfigMap, "a")
        await until(lambda: len(seen.events) == 4)
        assert seen.lines[1:] == ["ADDED b", "MODIFIED b", "DELETED a"]
        assert seen.events[2].old is not None
        assert seen.events[2].old.resource_version == seen.events[1].head.resource_version
        assert seen.events[2].object == updated
        assert maps.lister.get("b") == updated
        assert maps.lister.get("a") is None


async def test_an_object_that_leaves_the_selector_leaves_the_cache(client: Client, namespace: str) -> None:
    await client.create(config_map("a", {"app": "web"}))
    await client.create(config_map("other", {"app": "db"}))
    async with informed(client, namespace, label_selector="app=web") as (maps, seen):
        await client.patch(ConfigMap, "a", {"metadata": {"labels": {"app": "db"}}})
        await client.patch(ConfigMap, "other", {"metadata": {"labels": {"app": "web"}}})
        await until(lambda: len(seen.events) == 3)
        assert seen.lines == ["initial ADDED a", "DELETED a", "ADDED other"]
        assert [each.metadata.name for each in maps.lister.list()] == ["other"]


async def test_a_list_in_pages_is_complete(client: Client, namespace: str) -> None:
    names = {f"m{number}" for number in range(10)}
    for name in names:
        await client.create(config_map(name))
    async with informed(client, namespace, page_size=3) as (maps, _):
        assert names <= {head.name for head in maps.lister.heads()}


async def test_a_late_handler_sees_everything_and_then_only_changes(client: Client, namespace: str) -> None:
    await client.create(config_map("a"))
    async with informed(client, namespace) as (maps, _):
        late = Seen()
        await maps.on_event(added=late, updated=late, deleted=late).wait_synced(30)
        await client.delete(ConfigMap, "a")
        await until(lambda: "DELETED a" in late.lines)
        assert [line for line in late.lines if line.endswith(" a")] == ["initial ADDED a", "DELETED a"]


async def test_a_slow_handler_delays_no_other_handler(client: Client, namespace: str) -> None:
    go = asyncio.Event()
    slow: list[str] = []

    async def wait(event: InformerEvent[ConfigMap]) -> None:
        await go.wait()
        slow.append(event.key.name)

    async with informed(client, namespace) as (maps, seen):
        maps.on_event(added=wait)
        for number in range(5):
            await client.create(config_map(f"m{number}"))
        await until(lambda: len(seen.events) == 5)
        assert not slow
        go.set()
        await until(lambda: slow[-5:] == [f"m{number}" for number in range(5)])


async def test_under_a_storm_of_changes_the_cache_ends_up_equal_to_the_server(client: Client, namespace: str) -> None:
    rng = random.Random(4)
    alive: set[str] = set()

    def consistent(event: InformerEvent[ConfigMap]) -> None:
        name = event.key.name
        if event.type == "ADDED":
            assert name not in alive
            alive.add(name)
        elif event.type == "DELETED":
            alive.remove(name)
        else:
            assert name in alive

    async def one(name: str) -> None:
        for _ in range(8):
            if rng.random() < 0.4:
                try:
                    await client.delete(ConfigMap, name)
                except NotFound:
                    await client.create(config_map(name, n="0"))
            else:
                try:
                    await client.patch(ConfigMap, name, {"data": {"n": str(rng.random())}})
                except NotFound:
                    await client.create(config_map(name, n="0"))

    async with InformerFactory(client) as informers:
        maps = informers.for_kind(ConfigMap, namespace=namespace, indexes={"n": "data.n"}, managed_fields=True)
        handler = maps.on_event(added=consistent, updated=consistent, deleted=consistent)
        await informers.wait_synced(30)
        await asyncio.gather(*(one(f"m{number}") for number in range(12)))
        there = {each.metadata.name: each for each in await client.list(ConfigMap, namespace=namespace)}
        await until(
            lambda: {head.name: head.uid for head in maps.lister.heads()} == {name: each.metadata.uid for name, each in there.items()}
        )
        await until(lambda: {each.metadata.name: each for each in maps.lister.list()} == there)
        await until(lambda: handler.pending == 0)
        assert alive == set(there)
        assert not handler.failed
        for name, each in there.items():
            assert name in {head.name for head in maps.lister.heads_by_index("n", each.data.get("n", ""))}


async def test_a_kind_that_is_installed_later_is_waited_for_and_the_deadline_names_it(client: Client, namespace: str) -> None:
    group = f"g{uuid.uuid4().hex[:8]}.example.com"
    things = Unstructured.for_kind(f"{group}/v1", "Thing", plural="things", namespaced=True)
    async with InformerFactory(client) as informers:
        informer = informers.for_kind(things, namespace=namespace)
        await until(lambda: informer.failure is not None)
        with pytest.raises(DeadlineError, match=rf'things.{group} in namespace "{namespace}" \(NotFound: '):
            await informers.wait_synced(0.01)
        document = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"things.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        }
        await client.create(decode(CustomResourceDefinition, msgspec.json.encode(document)))
        try:
            await informers.wait_synced(30)
            await client.create(things.from_dict({"metadata": {"name": "t1", "namespace": namespace}}))
            await until(lambda: informer.lister.get("t1") is not None)
        finally:
            await client.delete(CustomResourceDefinition, f"things.{group}")


async def test_pods_are_found_by_node(client: Client, namespace: str) -> None:
    for name, node in (("one", "n1"), ("two", "n1"), ("three", "")):
        # A scheduler that does not exist: who has no node keeps none.
        spec: dict[str, object] = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "absent", "nodeName": node}
        body = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
        await client.create(decode(Pod, msgspec.json.encode(body)))
    async with InformerFactory(client) as informers:
        pods = informers.for_kind(Pod, namespace=namespace, indexes={"node": "spec.nodeName"})
        await informers.wait_synced(30)
        assert {pod.metadata.name for pod in pods.lister.by_index("node", "n1")} == {"one", "two"}
        assert {pod.metadata.name for pod in pods.lister.by_index("node", "")} == {"three"}
