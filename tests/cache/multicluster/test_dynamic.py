"""Informers of custom kinds that come and go with their definitions: on the embedded server, and a real one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.cache import Informer, InformerEvent, InformerFactory
from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.head import HeadReader, StringInterner
from kubeloop.cache.multicluster.dynamic import PATHS, DynamicInformers, ServedKind, priority, served_kind
from kubeloop.client import Client
from kubeloop.codec import decode
from kubeloop.meta import NotFound, Unstructured
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.timing import FakeClock
from tests.cache.source import until

JSON = dict[str, Any]


def definition(group: str, plural: str = "things", kind: str = "Thing", scope: str = "Namespaced", **versions: bool) -> JSON:
    """``versions``: name to whether it is served; the first is stored."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    listed = [
        {"name": name, "served": served, "storage": number == 0, "schema": schema}
        for number, (name, served) in enumerate((versions or {"v1": True}).items())
    ]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": listed},
    }


# ------------------------------------------------------------------------------------------------------ which kinds are served

READER = HeadReader("apiextensions.k8s.io/v1", "CustomResourceDefinition", PATHS, BlobStore(), StringInterner())


def established(document: JSON, established: str = "True") -> JSON:
    names = document["spec"]["names"]
    conditions = [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": established}]
    return {**document, "status": {"acceptedNames": names, "conditions": conditions}}


@pytest.mark.parametrize(
    ("document", "version"),
    [
        pytest.param(definition("g.io"), None, id="nothing before it is established"),
        pytest.param(established(definition("g.io"), "False"), None, id="nothing while its names are taken"),
        pytest.param(established(definition("g.io")), "v1", id="its only version"),
        pytest.param(established(definition("g.io", v1alpha1=True, v1=True)), "v1alpha1", id="the stored version, if it is served"),
        pytest.param(established(definition("g.io", v1=False, v1beta1=True, v2=True)), "v2", id="else the served one of highest priority"),
        pytest.param(established(definition("g.io", v1=False)), None, id="nothing when no version is served"),
    ],
)
def test_a_definition_serves(document: JSON, version: str | None) -> None:
    raw = msgspec.json.encode(document)
    found = served_kind(READER.head(READER.projection.object(raw), memoryview(raw), None))
    assert found == (None if version is None else ServedKind(GroupVersionKind("g.io", version, "Thing"), "things", True))


def test_versions_are_ordered_as_kubernetes_does() -> None:
    ordered = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
    assert sorted(sorted(ordered), key=priority, reverse=True) == ordered


# ------------------------------------------------------------------------------------------------------------- on a server


@pytest.fixture
async def group(client: Client) -> AsyncIterator[str]:
    """An API group of the test's own, whose definitions are deleted after it."""
    group = f"g{uuid.uuid4().hex[:8]}.example.com"
    yield group
    async for found in client.list(CustomResourceDefinition):
        if found.spec.group == group:
            await client.delete(CustomResourceDefinition, found.metadata.name or "")


async def install(client: Client, document: JSON) -> None:
    await client.create(decode(CustomResourceDefinition, msgspec.json.encode(document)))


async def make(client: Client, kind: type[Unstructured], name: str, namespace: str | None) -> None:
    """As soon as the server serves it: a definition is established before every part of a real server knows."""
    thing = kind.from_dict({"metadata": {"name": name} | ({"namespace": namespace} if namespace else {})})
    for _ in range(100):
        try:
            await client.create(thing)
        except NotFound:
            await asyncio.sleep(0.05)
        else:
            return
    raise AssertionError(f"{kind.kind} is not served")


class Seen:
    def __init__(self) -> None:
        self.events: list[InformerEvent[Unstructured]] = []

    def __call__(self, event: InformerEvent[Unstructured]) -> None:
        self.events.append(event)

    @property
    def lines(self) -> list[str]:
        return [
            f"{event.type.value} {event.view.kind.kind} {event.key.name}{' (tombstone)' if event.tombstone else ''}"
            for event in self.events
        ]


@pytest.mark.server
async def test_kinds_that_come_are_informed_of_and_kinds_that_go_are_forgotten_after_their_objects_were_reported_as_deleted(
    client: Client, namespace: str, group: str
) -> None:
    things = Unstructured.for_kind(f"{group}/v1", "Thing", plural="things", namespaced=True)
    widgets = Unstructured.for_kind(f"{group}/v1", "Widget", plural="widgets", namespaced=False)
    await install(client, definition(group))
    await make(client, things, "before", namespace)
    seen, log = Seen(), list[str]()
    async with InformerFactory(client) as informers:
        dynamic = DynamicInformers(
            informers,
            lambda kind: kind.gvk.group == group,
            namespace=namespace,
            started=lambda informer: log.append(f"started {informer.kind.kind}"),
            stopped=lambda informer: log.append(f"stopped {informer.kind.kind}"),
        )
        registration = dynamic.on_event(added=seen, updated=seen, deleted=seen)
        await dynamic.wait_synced(30)
        await until(lambda: bool(dynamic.kinds))  # a real server's first state may be a moment old
        await registration.wait_synced(30)
        assert (seen.lines, log) == (["ADDED Thing before"], ["started Thing"])
        assert list(dynamic.kinds) == [GroupVersionKind(group, "v1", "Thing")]

        await install(client, definition(group, "widgets", "Widget", "Cluster"))
        await until(lambda: "started Widget" in log)
        assert sorted(kind.kind for kind in registration.kinds) == ["Thing", "Widget"]
        await make(client, widgets, "w", None)
        async with asyncio.timeout(20):  # the first list may have come before a real server knew the kind: it is tried again
            while "ADDED Widget w" not in seen.lines:
                await asyncio.sleep(0.02)

        await client.delete(CustomResourceDefinition, f"things.{group}")
        async with asyncio.timeout(30):
            while "stopped Thing" not in log:
                await asyncio.sleep(0.02)
        assert [line.removesuffix(" (tombstone)") for line in seen.lines[2:]] == ["DELETED Thing before"]
        assert list(dynamic.kinds) == [GroupVersionKind(group, "v1", "Widget")]
        assert things not in {informer.kind for informer in informers}
        assert not [task for task in asyncio.all_tasks() if f"things.{group}" in task.get_name()]

        await install(client, definition(group))
        await until(lambda: log[-1] == "started Thing")
        await make(client, things, "again", namespace)
        async with asyncio.timeout(20):
            while seen.lines[-1] != "ADDED Thing again":
                await asyncio.sleep(0.02)
        registration.remove()
        assert registration.pending == 0


@pytest.mark.server
async def test_a_kind_whose_version_is_served_no_more_is_read_in_another(client: Client, namespace: str, group: str) -> None:
    document = definition(group, v1alpha1=True, v1=True)
    await install(client, document)
    seen = Seen()
    async with InformerFactory(client) as informers:
        dynamic = DynamicInformers(informers, lambda kind: kind.gvk.group == group, namespace=namespace)
        dynamic.on_event(added=seen, deleted=seen)
        await dynamic.wait_synced(30)
        await until(lambda: bool(dynamic.kinds))  # a real server's first state may be a moment old
        ((gvk, _),) = dynamic.kinds.items()
        assert gvk.version == "v1alpha1"
        await make(client, Unstructured.for_kind(f"{group}/v1", "Thing", plural="things", namespaced=True), "one", namespace)
        await until(lambda: seen.lines == ["ADDED Thing one"])
        patch = [
            {"op": "replace", "path": "/spec/versions/0/storage", "value": False},
            {"op": "replace", "path": "/spec/versions/1/storage", "value": True},
            {"op": "replace", "path": "/spec/versions/0/served", "value": False},
        ]
        await client.patch(CustomResourceDefinition, f"things.{group}", patch, type="json")
        async with asyncio.timeout(20):
            while len(seen.events) < 3:
                await asyncio.sleep(0.02)
        assert seen.lines == ["ADDED Thing one", "DELETED Thing one (tombstone)", "ADDED Thing one"]
        assert [event.view.kind.api_version for event in seen.events] == [f"{group}/{v}" for v in ("v1alpha1", "v1alpha1", "v1")]


@pytest.mark.server
async def test_a_handler_that_misses_its_stop_timeout_does_not_keep_others_from_ending(
    client: Client, namespace: str, group: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kubeloop.cache.multicluster import dynamic as module

    monkeypatch.setattr(module, "FAREWELL", 0.05)
    things = Unstructured.for_kind(f"{group}/v1", "Thing", plural="things", namespaced=True)
    await install(client, definition(group))
    await make(client, things, "one", namespace)
    stopped: list[Informer[Unstructured]] = []

    async def hangs(event: InformerEvent[Unstructured]) -> None:
        await asyncio.Event().wait()

    async with InformerFactory(client) as informers:
        dynamic = DynamicInformers(informers, lambda kind: kind.gvk.group == group, namespace=namespace, stopped=stopped.append)
        dynamic.on_event(added=hangs, deleted=hangs, name="hanging")
        await until(lambda: len(dynamic.kinds) == 1 and dynamic.kinds[GroupVersionKind(group, "v1", "Thing")].synced)
        await client.delete(CustomResourceDefinition, f"things.{group}")
        async with asyncio.timeout(30):
            while not stopped:
                await asyncio.sleep(0.02)
        assert "removed, but not all handlers were notified: after 0.05 s: handler hanging has" in caplog.text
        dynamic.stop()


@pytest.mark.embedded
async def test_a_kind_that_comes_back_during_its_farewell_waits_for_its_end_and_no_other_kind_waits(
    client: Client, namespace: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock, log = FakeClock(), list[str]()
    things = Unstructured.for_kind(f"{group}/v1", "Thing", plural="things", namespaced=True)
    await install(client, definition(group))
    await make(client, things, "one", namespace)

    async def hangs(event: InformerEvent[Unstructured]) -> None:
        log.append(f"{event.type.value} {event.key.name}")
        if event.key.name == "one":
            await asyncio.Event().wait()

    def started(informer: Informer[Unstructured]) -> None:
        log.append(f"started {informer.kind.kind}")
        raise RuntimeError("boom")

    async with InformerFactory(client, clock=clock) as informers:
        dynamic = DynamicInformers(
            informers,
            lambda kind: kind.gvk.group == group,
            namespace=namespace,
            started=started,
            stopped=lambda informer: log.append(f"stopped {informer.kind.kind}"),
        )
        dynamic.on_event(added=hangs, deleted=hangs)
        await until(lambda: log == ["started Thing", "ADDED one"])
        assert "things." in caplog.text
        assert "started failed; going on" in caplog.text
        await client.delete(CustomResourceDefinition, f"things.{group}")
        await until(lambda: dynamic.kinds == {})
        await client.wait_gone(CustomResourceDefinition, f"things.{group}", timeout=10)
        await install(client, definition(group))
        await install(client, definition(group, "widgets", "Widget", "Cluster"))
        await until(lambda: log[-1] == "started Widget")
        assert "stopped Thing" not in log
        await clock.advance(30)
        await until(lambda: log[-2:] == ["stopped Thing", "started Thing"])
        assert sorted(gvk.kind for gvk in dynamic.kinds) == ["Thing", "Widget"]
