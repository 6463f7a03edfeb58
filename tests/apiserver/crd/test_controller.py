"""The CRD controller: stored definitions become resources in the registry, and a deletion removes all instances."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kubeloop.apiserver.crd.controller import DEFINITIONS, DefinitionController
from kubeloop.apiserver.crd.definition import CLEANUP_FINALIZER, condition, is_true
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.server.bootstrap import builtin_registry
from kubeloop.apiserver.storage import MemoryStorage
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.endpoints.api_errors import forbidden
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.schema import builtin
from kubeloop.tasks import Supervisor
from kubeloop.timing import FakeClock

GVR = GroupVersionResource("kl.example.com", "v1", "objs")


def definition(plural: str = "objs", kind: str = "Obj", *versions: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    shown = [{"name": name, "served": True, "storage": at == 0, "schema": schema} for at, name in enumerate(versions or ("v1",))]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.kl.example.com", "uid": plural},
        "spec": {"group": "kl.example.com", "names": names, "scope": "Namespaced", "versions": shown},
        "status": {"acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]},
    }


class Bench:
    """Storage, registry and a keeper, without a server around them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.storage = MemoryStorage(self.clock)
        self.cache = WatchCache(self.storage)
        self.objects = Objects(self.storage)
        self.registry = builtin_registry(builtin(), self.clock)
        self.tasks = Supervisor(self.clock, logging.getLogger("test"))
        self.keeper = DefinitionController(self.objects, self.cache, self.registry, self.clock, self.delete)
        self.asked: list[str] = []
        #: Names of instances that a finalizer holds.
        self.held: set[str] = set()
        self.refuse = 0

    async def delete(self, resource: ServedResource, namespace: str, name: str) -> None:
        self.asked.append(name)
        if self.refuse:
            self.refuse -= 1
            raise forbidden(resource.gvr.group_resource, name, "not now")
        if name not in self.held:
            await self.remove(resource, namespace, name)

    async def remove(self, resource: ServedResource, namespace: str, name: str) -> None:
        stored = await self.objects.get(resource, namespace, name)
        assert stored is not None
        await self.objects.remove(stored)

    @property
    def definitions(self) -> ServedResource:
        found = self.registry.get(DEFINITIONS)
        assert found is not None
        return found

    async def read(self, name: str = "objs.kl.example.com") -> dict[str, Any] | None:
        stored = await self.objects.get(self.definitions, "", name)
        return None if stored is None else stored.obj

    async def create(self, obj: dict[str, Any]) -> None:
        await self.objects.write(self.definitions, obj, expected=0)

    async def change(self, change: Callable[[dict[str, Any]], None], name: str = "objs.kl.example.com") -> None:
        stored = await self.objects.get(self.definitions, "", name)
        assert stored is not None
        obj = copy.deepcopy(stored.obj)
        change(obj)
        await self.objects.write(self.definitions, obj, expected=stored.revision)

    async def add(self, name: str) -> ServedResource:
        resource = self.registry.get(GVR)
        assert resource is not None
        obj = {"apiVersion": "kl.example.com/v1", "kind": "Obj", "metadata": {"name": name, "namespace": "n", "uid": name}}
        await self.objects.write(resource, obj, expected=0)
        return resource

    async def until(self, condition: Callable[[], Any]) -> None:
        """Give other tasks turns until something holds; what never comes fails after a thousand turns."""
        for _ in range(1000):
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0)
        raise AssertionError("it never came")


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    await made.cache.start()
    await made.keeper.start(made.tasks)
    yield made
    await made.keeper.stop()
    await made.cache.stop()
    await made.storage.close()


def begin_deletion(crd: dict[str, Any]) -> None:
    crd["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [CLEANUP_FINALIZER]}


async def established(bench: Bench, name: str = "objs.kl.example.com") -> bool:
    crd = await bench.read(name)
    return crd is not None and is_true(crd, "Established")


async def test_a_definition_is_served_when_it_shows_established(bench: Bench) -> None:
    await bench.create(definition())
    await bench.until(lambda: established(bench))
    assert bench.registry.get(GVR) is not None


async def test_a_definition_whose_kind_is_taken_is_not_served_until_it_is_free(bench: Bench) -> None:
    await bench.create(definition())
    await bench.until(lambda: established(bench))
    await bench.create(definition("others"))
    others = GroupVersionResource("kl.example.com", "v1", "others")
    await bench.until(lambda: refused(bench))
    assert bench.registry.get(others) is None
    await bench.change(begin_deletion)
    await bench.until(lambda: established(bench, "others.kl.example.com"))
    assert bench.registry.get(others) is not None


async def refused(bench: Bench) -> bool:
    crd = await bench.read("others.kl.example.com")
    found = condition(crd or {}, "NamesAccepted")
    return found is not None and found["reason"] == "ListKindConflict"


async def test_a_version_that_is_no_longer_served_leaves_the_registry(bench: Bench) -> None:
    await bench.create(definition("objs", "Obj", "v1", "v2"))
    await bench.until(lambda: established(bench))
    second = GVR._replace(version="v2")
    assert bench.registry.get(second) is not None

    def stop_serving(crd: dict[str, Any]) -> None:
        crd["spec"]["versions"][1]["served"] = False

    await bench.change(stop_serving)
    await bench.until(lambda: bench.registry.get(second) is None)
    assert bench.registry.get(GVR) is not None


async def test_a_new_schema_applies_to_all_later_reads(bench: Bench) -> None:
    await bench.create(definition())
    await bench.until(lambda: established(bench))
    await bench.add("a")

    def tighten(crd: dict[str, Any]) -> None:
        properties = {"size": {"type": "integer", "default": 3}}
        crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": properties}}

    await bench.change(tighten)

    async def defaulted() -> bool:
        resource = bench.registry.get(GVR)
        assert resource is not None
        stored = await bench.objects.get(resource, "n", "a")
        return stored is not None and stored.obj.get("size") == 3

    await bench.until(defaulted)


async def test_deletion_removes_instances_first_and_waits_for_instances_with_finalizers(bench: Bench) -> None:
    await bench.create(definition())
    await bench.until(lambda: established(bench))
    for name in ("a", "b"):
        resource = await bench.add(name)
    bench.held.add("b")
    await bench.change(begin_deletion)
    await bench.until(lambda: bench.asked == ["a", "b"])
    await bench.until(lambda: reason(bench, "Terminating", "InstanceDeletionInProgress"))
    assert bench.registry.get(GVR) is not None
    await bench.remove(resource, "n", "b")
    await bench.until(lambda: gone(bench))
    assert bench.registry.get(GVR) is None


async def test_watches_have_every_deletion_before_the_resource_leaves_the_registry(bench: Bench) -> None:
    await bench.create(definition())
    await bench.until(lambda: established(bench))
    for name in ("a", "b"):
        resource = await bench.add(name)
    await bench.cache.wait_until(await bench.storage.revision())
    subscription = bench.cache.subscribe(resource.storage_prefix)
    bench.registry.on_change(lambda change: subscription.end() if change.after is None else None)
    await bench.change(begin_deletion)
    await bench.until(lambda: gone(bench))
    deleted = [event.key.rpartition("/")[2] for event in await subscription.receive() if event.event.value is None]
    subscription.close()
    assert deleted == ["a", "b"]


async def reason(bench: Bench, type_: str, expected: str) -> bool:
    crd = await bench.read()
    found = condition(crd or {}, type_)
    return found is not None and found["reason"] == expected


async def gone(bench: Bench) -> bool:
    return await bench.read() is None


async def test_a_deletion_that_is_refused_is_tried_again_later(bench: Bench) -> None:
    await bench.create(definition())
    await bench.until(lambda: established(bench))
    await bench.add("a")
    bench.refuse = 1
    await bench.change(begin_deletion)
    await bench.until(lambda: reason(bench, "Terminating", "InstanceDeletionFailed"))
    await bench.clock.advance(5)
    await bench.until(lambda: gone(bench))
    assert bench.asked == ["a", "a"]


async def test_another_finalizer_keeps_the_definition_without_its_resources(bench: Bench) -> None:
    await bench.create(definition())
    await bench.until(lambda: established(bench))

    def begin(crd: dict[str, Any]) -> None:
        begin_deletion(crd)
        crd["metadata"]["finalizers"].append("example.com/hold")

    await bench.change(begin)

    async def released() -> bool:
        crd = await bench.read()
        return crd is not None and crd["metadata"]["finalizers"] == ["example.com/hold"]

    await bench.until(released)
    await bench.until(lambda: bench.registry.get(GVR) is None)


async def test_what_storage_holds_is_served_from_the_start() -> None:
    bench = Bench()
    await bench.create(definition())
    await bench.cache.start()
    await bench.keeper.start(bench.tasks)
    assert bench.registry.get(GVR) is not None
    assert await established(bench)
    await bench.keeper.stop()
    await bench.cache.stop()
    await bench.storage.close()


async def test_built_in_resources_are_never_replaced(bench: Bench) -> None:
    crd = definition("leases", "Lease")
    crd["metadata"]["name"] = "leases.coordination.k8s.io"
    crd["spec"]["group"] = "coordination.k8s.io"
    before = bench.registry.get(GroupVersionResource("coordination.k8s.io", "v1", "leases"))
    await bench.create(crd)
    await bench.until(lambda: established(bench, "leases.coordination.k8s.io"))
    assert bench.registry.get(GroupVersionResource("coordination.k8s.io", "v1", "leases")) is before
