"""Read your own writes, on a server: after a write has returned, listers show it, whether the watch has brought it or not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
import pytest

from kubeloop.api.apps.v1 import Deployment
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import Informer, InformerFactory
from kubeloop.client import ALL_NAMESPACES, Client, WriteOptions
from kubeloop.meta import BadRequest, ObjectMeta, Status, Unstructured
from kubeloop.testing import TlsTestServer
from kubeloop.transport import Transport
from tests.cache.source import until

FINALIZER = "example.com/hold"


def config_map(name: str, app: str = "web", **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels={"app": app}), data=data)


def versions(objects: Sequence[ConfigMap | None]) -> list[tuple[str, str, dict[str, str]]]:
    """Without managedFields, which informers leave out."""
    return [(each.metadata.name, each.metadata.resource_version, each.data) for each in objects if each is not None]


def shown(informer: Informer[ConfigMap]) -> dict[str, str]:
    return {each.metadata.name: each.data.get("x", "") for each in informer.lister.list()}


# ----------------------------------------------------------------------------------- the embedded server and a real one, racing


@pytest.mark.server
async def test_each_write_is_seen_by_the_very_next_read(client: Client, namespace: str) -> None:
    async with InformerFactory(client) as informers:
        maps = informers.for_kind(ConfigMap, namespace=namespace, label_selector="app=web", indexes={"x": "data.x"})
        await informers.wait_synced(10)
        for number in range(30):
            name = f"a{number}"
            created = await client.create(config_map(name, x="1"))
            assert versions(maps.lister.list()) == versions([created])
            created.data["x"] = "2"
            updated = await client.update(created)
            assert versions([maps.lister.get(name)]) == versions([updated])
            patched = await client.patch(ConfigMap, name, {"data": {"x": "3"}})
            assert versions(maps.lister.by_index("x", "3")) == versions([patched])
            assert maps.lister.by_index("x", "2") == []
            await client.patch(ConfigMap, name, {"metadata": {"labels": {"app": "db"}}})
            assert maps.lister.get(name) is None
            await client.patch(ConfigMap, name, {"metadata": {"labels": {"app": "web"}}})
            assert len(maps.lister) == 1
            await client.delete(ConfigMap, name)
            assert maps.lister.list() == []
        await maps.lister.wait_fresh(timeout=10)
        assert maps.lister.list() == []


# ------------------------------------------------------------------------------------------------- while the watch brings nothing


@pytest.fixture
async def blind(in_loop_server: TlsTestServer) -> AsyncIterator[Callable[[], None]]:
    """Informers get lists, and no watch is answered until what this gives is called."""
    faults = in_loop_server.faults
    no_streams = BadRequest(Status(code=400, reason="BadRequest", message="sendInitialEvents is not known here"))
    faults.refuse(no_streams, times=100, matching=lambda request: "sendInitialEvents" in request.query_string)
    see = faults.hold(matching=lambda request: "watch=" in request.query_string and "sendInitialEvents" not in request.query_string)
    yield see
    see()


@pytest.mark.embedded
class TestBlind:
    """The informers list, and their watches wait at the door."""

    async def test_own_writes_are_in_every_kind_of_answer(self, in_loop_server: TlsTestServer, blind: Callable[[], None]) -> None:
        async with Client(Transport(in_loop_server.config), namespace="default") as client, InformerFactory(client) as informers:
            for name in ("old", "changed", "deleted"):
                await client.create(config_map(name, x="1"))
            maps = informers.for_kind(ConfigMap, label_selector="app in (web,db)", indexes={"x": "data.x"}, namespace=ALL_NAMESPACES)
            everywhere = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
            other = informers.for_kind(ConfigMap, namespace="kube-system")
            bare = informers.for_kind(Unstructured.for_kind("v1", "ConfigMap"), namespace=ALL_NAMESPACES)
            await informers.wait_synced(10)
            before = maps.resource_version
            await client.patch(ConfigMap, "changed", {"data": {"x": "2"}, "metadata": {"labels": {"app": "db"}}})
            await client.create(config_map("new", x="2"))
            await client.delete(ConfigMap, "deleted")
            assert maps.resource_version == before, "the watch has brought nothing"
            assert shown(maps) == {"old": "1", "changed": "2", "new": "2"}
            assert {head.name for head in maps.lister.heads(label_selector="app=db")} == {"changed"}
            assert {head.name for head in maps.lister.heads_by_index("x", "2")} == {"changed", "new"}
            assert maps.lister.index_values("x") == ["1", "2"]
            assert [each.metadata.name async for each in maps.lister.stream(label_selector="app=web")] == ["old", "new"]
            assert len(maps.lister) == 3
            assert maps.lister.get("deleted", "default") is None
            assert {head.name for head in everywhere.lister.heads("default")} == {"old", "changed", "new"}
            changed = bare.lister.get("changed", "default")
            assert changed is not None
            assert changed["data"]["x"] == "2"
            assert "new" not in {head.name for head in other.lister.heads()}
            blind()
            await maps.lister.wait_fresh(timeout=10)
            assert shown(maps) == {"old": "1", "changed": "2", "new": "2"}

    async def test_handlers_hear_the_watch_and_not_the_overlay(self, in_loop_server: TlsTestServer, blind: Callable[[], None]) -> None:
        heard: list[str] = []
        async with Client(Transport(in_loop_server.config), namespace="default") as client, InformerFactory(client) as informers:
            maps = informers.for_kind(ConfigMap, label_selector="app=web", namespace=ALL_NAMESPACES)
            maps.on_event(added=lambda event: heard.append(f"ADDED {event.key.name}"))
            await informers.wait_synced(10)
            await client.create(config_map("a"))
            late = maps.on_event(added=lambda event: heard.append(f"late {event.key.name}"))
            await late.wait_synced(10)
            assert heard == []
            blind()
            await until(lambda: sorted(heard) == ["ADDED a", "late a"])

    async def test_a_deletion_that_a_finalizer_holds_shows_the_object_as_deleting_until_it_is_taken(
        self, in_loop_server: TlsTestServer, blind: Callable[[], None]
    ) -> None:
        async with Client(Transport(in_loop_server.config), namespace="default") as client, InformerFactory(client) as informers:
            maps = informers.for_kind(ConfigMap, label_selector="app=web", managed_fields=True, namespace=ALL_NAMESPACES)
            await informers.wait_synced(10)
            held = config_map("a")
            held.metadata.finalizers = [FINALIZER]
            await client.create(held)
            await client.delete(ConfigMap, "a")
            head = maps.lister.head("a", "default")
            assert head is not None
            assert head.deleting
            await client.patch(ConfigMap, "a", {"metadata": {"finalizers": None}})
            assert maps.lister.get("a", "default") is None
            again = await client.create(config_map("a", x="new"))
            assert maps.lister.get("a", "default") == again
            blind()
            await maps.lister.wait_fresh(timeout=10)
            assert maps.lister.get("a", "default") == again

    async def test_an_own_write_in_the_cache_has_the_form_that_the_informer_keeps(
        self, in_loop_server: TlsTestServer, blind: Callable[[], None]
    ) -> None:
        def without_data(tree: dict[str, object]) -> None:
            tree.pop("data", None)

        async with Client(Transport(in_loop_server.config), namespace="default") as client, InformerFactory(client) as informers:
            fields = informers.for_kind(ConfigMap, fields=["data.x"], namespace=ALL_NAMESPACES)
            metadata = informers.metadata(ConfigMap, namespace=ALL_NAMESPACES)
            transformed = informers.for_kind(ConfigMap, transform=without_data, namespace=ALL_NAMESPACES)
            await informers.wait_synced(10)
            await client.create(config_map("a", x="1", y="2"))
            kept = fields.lister.get("a", "default")
            assert kept is not None
            assert (kept.data, kept.metadata.labels) == ({"x": "1"}, {"app": "web"})
            partial = metadata.lister.get("a", "default")
            assert partial is not None
            assert partial.metadata.labels == {"app": "web"}
            cut = transformed.lister.get("a", "default")
            assert cut is not None
            assert cut.data == {}

    async def test_status_writes_are_shown_and_scaling_is_left_to_the_watch(
        self, in_loop_server: TlsTestServer, blind: Callable[[], None]
    ) -> None:
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        async with Client(Transport(in_loop_server.config), namespace="default") as client, InformerFactory(client) as informers:
            deployments = informers.for_kind(Deployment, namespace=ALL_NAMESPACES)
            await informers.wait_synced(10)
            created = await client.create(msgspec.convert({"metadata": {"name": "web"}, "spec": spec}, Deployment))
            assert created.status is not None
            created.status.observed_generation = 1
            await client.update_status(created)
            await client.set_scale(Deployment, "web", 5)
            web = deployments.lister.get("web", "default")
            assert web is not None
            assert web.status is not None
            assert (web.status.observed_generation, web.spec.replicas) == (1, 1)
            await client.delete_collection(Deployment)
            assert deployments.lister.get("web", "default") is not None, "deletions of many are left to the watch"
            blind()
            await until(lambda: len(deployments.lister) == 0)

    async def test_a_dry_run_is_not_shown(self, in_loop_server: TlsTestServer, blind: Callable[[], None]) -> None:
        async with Client(Transport(in_loop_server.config), namespace="default") as client, InformerFactory(client) as informers:
            maps = informers.for_kind(ConfigMap, label_selector="app=web", namespace=ALL_NAMESPACES)
            await informers.wait_synced(10)
            await client.create(config_map("a"), options=WriteOptions(dry_run=True))
            assert len(maps.lister) == 0

    async def test_it_can_be_turned_off(self, in_loop_server: TlsTestServer, blind: Callable[[], None]) -> None:
        async with (
            Client(Transport(in_loop_server.config), namespace="default") as client,
            InformerFactory(client, read_your_writes=False) as informers,
        ):
            maps = informers.for_kind(ConfigMap, label_selector="app=web", namespace=ALL_NAMESPACES)
            await informers.wait_synced(10)
            await client.create(config_map("a"))
            assert maps.lister.list() == []

    async def test_after_the_block_no_listener_of_the_client_is_left(
        self, in_loop_server: TlsTestServer, blind: Callable[[], None]
    ) -> None:
        async with Client(Transport(in_loop_server.config), namespace="default") as client:
            async with InformerFactory(client) as informers:
                maps = informers.for_kind(ConfigMap, label_selector="app=web", namespace=ALL_NAMESPACES)
                await informers.wait_synced(10)
            await client.create(config_map("a"))
            assert maps.lister.list() == []

    async def test_namespaces_that_are_watched_apart_confirm_writes_apart(
        self, in_loop_server: TlsTestServer, blind: Callable[[], None]
    ) -> None:
        async with Client(Transport(in_loop_server.config)) as client, InformerFactory(client) as informers:
            maps = informers.for_kind(ConfigMap, namespace=["default", "kube-system"], label_selector="app=web")
            await informers.wait_synced(10)
            for namespace in ("default", "kube-system", "kube-public"):
                await client.create(config_map("a", x=namespace), namespace=namespace)
            assert {(head.namespace, head.name) for head in maps.lister.heads()} == {("default", "a"), ("kube-system", "a")}
            blind()
            await maps.lister.wait_fresh(timeout=10)
            assert {(head.namespace, head.name) for head in maps.lister.heads()} == {("default", "a"), ("kube-system", "a")}
