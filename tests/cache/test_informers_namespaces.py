"""Informers of several namespaces: one watch for each, one store, one lister, and each namespace fails by itself [S224] [S225]."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.api.core.v1 import ConfigMap, Namespace
from kubeloop.cache import InformerEvent, InformerFactory, OutsideScope
from kubeloop.client import Client
from kubeloop.endpoints import api_errors
from kubeloop.meta import DeadlineError, Forbidden, ObjectMeta
from kubeloop.serving.request import Request
from kubeloop.testing import TlsTestServer
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from tests.cache.source import until


class Seen:
    def __init__(self) -> None:
        self.events: list[InformerEvent[ConfigMap]] = []

    def __call__(self, event: InformerEvent[ConfigMap]) -> None:
        self.events.append(event)

    @property
    def lines(self) -> list[str]:
        return [
            f"{'initial ' if event.initial else ''}{event.type.value} {event.key}{' (tombstone)' if event.tombstone else ''}"
            for event in self.events
        ]


def config_map(name: str, namespace: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data=data)


def of_a(request: Request) -> bool:
    return request.method == "GET" and "/namespaces/a/configmaps" in request.path


async def make(client: Client, *namespaces: str) -> None:
    for name in namespaces:
        await client.create(Namespace(metadata=ObjectMeta(name=name)))


@pytest.mark.embedded
async def test_each_namespace_is_watched_apart_into_one_cache_which_a_lister_reads_as_one(in_loop_server: TlsTestServer) -> None:
    seen = Seen()
    async with Client(Transport(in_loop_server.config)) as client, InformerFactory(client) as informers:
        await make(client, "a", "b", "c")
        for namespace in "abc":
            await client.create(config_map("one", namespace, team=namespace))
        maps = informers.for_kind(ConfigMap, namespace=["b", "a", "b"], indexes={"team": "data.team"})
        assert informers.for_kind(ConfigMap, namespace=("a", "b")) is maps
        assert informers.for_kind(ConfigMap, namespace="a") is not maps
        maps.on_event(added=seen, updated=seen, deleted=seen)
        await informers.wait_synced(10)
        await until(lambda: len(seen.events) == 2)
        assert sorted(seen.lines) == ["initial ADDED a/one", "initial ADDED b/one"]
        assert sorted(each.metadata.namespace or "" for each in maps.lister.list()) == ["a", "b"]
        assert [head.namespace for head in maps.lister.heads_by_index("team", "b")] == ["b"]
        assert maps.lister.get("one", "a") is not None
        with pytest.raises(OutsideScope, match='of namespace "a", "b" only, not of "c"'):
            maps.lister.get("one", "c")
        with pytest.raises(ValueError, match='a namespace is needed to name one ConfigMap \\("one"\\): this informer watches a, b'):
            maps.lister.get("one")
        await client.create(config_map("two", "c"))
        await client.create(config_map("two", "a"))
        await client.delete(ConfigMap, "one", namespace="b")
        await until(lambda: seen.lines[-1] == "DELETED b/one")
        assert seen.lines[2:] == ["ADDED a/two", "DELETED b/one"]


@pytest.mark.embedded
async def test_a_namespace_that_is_listed_again_leaves_the_others_alone(in_loop_server: TlsTestServer) -> None:
    """[S225]"""
    seen, clock = Seen(), FakeClock()
    async with Client(Transport(in_loop_server.config)) as client, InformerFactory(client, clock=clock) as informers:
        await make(client, "a", "b")
        await client.create(config_map("gone", "a"))
        await client.create(config_map("stays", "b"))
        maps = informers.for_kind(ConfigMap, namespace=["a", "b"])
        maps.on_event(added=seen, updated=seen, deleted=seen)
        await informers.wait_synced(10)
        await until(lambda: len(seen.events) == 2)
        release = in_loop_server.faults.hold(matching=of_a)
        in_loop_server.faults.cut_streams()
        await client.delete(ConfigMap, "gone", namespace="a")
        # The watch of "a", and then its list at the version last seen; that of "b" goes on where it was.
        in_loop_server.faults.expire_next(matching=of_a, times=2)
        release()
        async with asyncio.timeout(5):
            while len(seen.events) < 3:
                await clock.advance(1)
                await asyncio.sleep(0.01)
        assert seen.lines[2] == "DELETED a/gone (tombstone)"
        assert [head.name for head in maps.lister.heads()] == ["stays"]
        await client.create(config_map("new", "b"))
        await until(lambda: len(seen.events) == 4)
        assert seen.lines[3] == "ADDED b/new"


@pytest.mark.embedded
async def test_it_has_synced_when_all_have_and_missing_ones_are_named(in_loop_server: TlsTestServer) -> None:
    """[S224]"""
    clock = FakeClock()
    async with Client(Transport(in_loop_server.config)) as client, InformerFactory(client, clock=clock) as informers:
        await make(client, "a", "b")
        await client.create(config_map("one", "a"))
        release = in_loop_server.faults.hold(matching=lambda request: "/namespaces/b/configmaps" in request.path)
        maps = informers.for_kind(ConfigMap, namespace=["a", "b"])
        seen = Seen()
        registration = maps.on_event(added=seen)
        await until(lambda: maps._runner.feeds[0].synced and len(seen.events) == 1)
        assert (maps.synced, registration.synced) == (False, False)
        assert maps.resource_version == "", "not all is here up to any version"
        late = Seen()
        maps.on_event(added=late)
        await until(lambda: late.lines == ["initial ADDED a/one"])
        waiting = asyncio.create_task(informers.wait_synced(10))
        await clock.advance(10)
        with pytest.raises(DeadlineError, match=r'not synced: configmaps in namespace "b" \(the server has not begun to stream'):
            await waiting
        release()
        await client.create(config_map("two", "b"))
        await registration.wait_synced()
        await until(lambda: len(late.events) == 2)
        assert late.lines[1] in ("initial ADDED b/two", "ADDED b/two")
        assert int(maps.resource_version) >= 1


@pytest.mark.embedded
async def test_a_namespace_that_is_forbidden_is_named_at_once_and_the_others_are_served(in_loop_server: TlsTestServer) -> None:
    """[S224]"""
    async with Client(Transport(in_loop_server.config)) as client, InformerFactory(client) as informers:
        await make(client, "a", "b")
        await client.create(config_map("one", "a"))
        text = 'configmaps is forbidden: User "x" cannot list resource "configmaps" in API group "" in the namespace "b"'
        refusal = api_errors.refusal(403, "Forbidden", text)
        in_loop_server.faults.refuse(refusal, times=100, matching=lambda request: "/namespaces/b/configmaps" in request.path)
        maps = informers.for_kind(ConfigMap, namespace=["a", "b"])
        with pytest.raises(Forbidden, match='in the namespace "b"'):
            await informers.wait_synced(10)
        await until(lambda: maps._runner.feeds[0].synced)
        assert [feed.synced for feed in maps._runner.feeds] == [True, False]
        assert maps.lister.get("one", "a") is not None
        await client.create(config_map("two", "a"))
        await until(lambda: len(maps.lister) == 2)


@pytest.mark.parametrize(
    ("namespace", "text"),
    [
        pytest.param([], "names no namespace", id="no namespace at all is not all namespaces"),
        pytest.param("", "names no namespace", id="an empty name is not all namespaces"),
        pytest.param(["a", ""], "names no namespace", id="an empty name among others"),
    ],
)
@pytest.mark.embedded
async def test_what_names_no_namespace_is_refused(in_loop_server: TlsTestServer, namespace: str | list[str], text: str) -> None:
    async with Client(Transport(in_loop_server.config)) as client:
        with pytest.raises(ValueError, match=text):
            InformerFactory(client).for_kind(ConfigMap, namespace=namespace)


@pytest.mark.server
async def test_two_namespaces_of_one_server(client: Client, namespace: str) -> None:
    """[S224]"""
    other = f"{namespace}-b"
    await make(client, other)
    try:
        await client.create(config_map("one", namespace))
        await client.create(config_map("one", other))
        seen = Seen()
        async with InformerFactory(client) as informers:
            maps = informers.for_kind(ConfigMap, namespace=[namespace, other], label_selector="!nothing")
            registration = maps.on_event(added=seen, updated=seen, deleted=seen, predicate=lambda head: head.name != "kube-root-ca.crt")
            await registration.wait_synced(30)
            assert sorted(seen.lines) == sorted([f"initial ADDED {namespace}/one", f"initial ADDED {other}/one"])
            await client.delete(ConfigMap, "one", namespace=other)
            await client.create(config_map("two", namespace))
            await until(lambda: len(seen.events) == 4)
            assert set(seen.lines[2:]) == {f"DELETED {other}/one", f"ADDED {namespace}/two"}
            assert {head.name for head in maps.lister.heads(namespace)} >= {"one", "two"}
    finally:
        await client.delete(Namespace, other)
