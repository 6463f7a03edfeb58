"""A server without a socket: the same objects and errors as over TLS, streams that run, nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from kubeloop.api.apps.v1 import Deployment, DeploymentSpec
from kubeloop.api.core.v1 import ConfigMap, Container, Namespace, Pod, PodSpec, PodTemplateSpec
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.api.meta.v1 import LabelSelector
from kubeloop.api.rbac.v1 import ClusterRole
from kubeloop.cache import InformerFactory
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import Conflict, Expired, Forbidden, Invalid, NotFound, ObjectMeta, TransportError
from kubeloop.testing import HandlerServer
from kubeloop.timing import FakeClock

pytestmark = pytest.mark.embedded


@pytest.fixture
async def server() -> AsyncIterator[HandlerServer]:
    async with HandlerServer() as found:
        yield found


@pytest.fixture
def client(server: HandlerServer) -> Client:
    return server.client()


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name), data=data)


async def test_it_validates_and_defaults_as_the_server_does(client: Client) -> None:
    pods = PodTemplateSpec(metadata=ObjectMeta(labels={"app": "web"}), spec=PodSpec(containers=[Container(name="web", image="web:1")]))
    made = await client.create(
        Deployment(metadata=ObjectMeta(name="web"), spec=DeploymentSpec(selector=LabelSelector(match_labels={"app": "web"}), template=pods))
    )
    assert made.metadata.uid
    assert made.spec is not None
    assert made.spec.replicas == 1
    with pytest.raises(Invalid, match=r"spec\.containers: Required value"):
        await client.create(Pod(metadata=ObjectMeta(name="empty"), spec=PodSpec()))


async def test_a_list_that_the_server_would_compress_for_a_socket_is_read(client: Client) -> None:
    for name in ("a", "b"):
        await client.create(config_map(name, text="x" * 100_000))  # more than 128 KiB together (endpoints/responses.py)
    assert [len(found.data["text"]) async for found in client.list(ConfigMap)] == [100_000, 100_000]


async def test_a_watch_streams_and_its_end_is_the_servers_too(server: HandlerServer, client: Client) -> None:
    async with client.watch(ConfigMap, namespace=ALL_NAMESPACES) as events:
        await client.create(config_map("a"))
        first = await anext(aiter(events))
        assert (first.type, first.object.metadata.name) == ("ADDED", "a")
    await asyncio.sleep(0)
    assert server.faults.cut_streams() == 0


async def test_a_watch_that_was_closed_before_anything_came_leaves_nothing(server: HandlerServer) -> None:
    async with server.transport() as transport:
        async with transport.stream("GET", "/api/v1/configmaps", query={"watch": True}) as stream:
            assert stream.status == 200
        async with transport.stream("GET", "/api/v1/configmaps", query={"watch": True}) as stream:
            reading = asyncio.ensure_future(anext(aiter(stream.chunks())))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def test_a_closed_client_ends_its_streams_with_an_error_that_says_so(server: HandlerServer) -> None:
    transport = server.transport()
    async with transport.stream("GET", "/api/v1/configmaps", query={"watch": True}) as stream:
        reading = asyncio.ensure_future(anext(aiter(stream.chunks())))
        await asyncio.sleep(0)
        await transport.close()
        with pytest.raises(TransportError, match="this transport was closed during the request"):
            await reading


async def test_a_request_under_way_ends_with_its_client(server: HandlerServer) -> None:
    server.faults.hold()
    transport = server.transport()
    asking = asyncio.ensure_future(transport.request("GET", "/api/v1/pods"))
    while not server.faults.requests:
        await asyncio.sleep(0)
    await transport.close()
    with pytest.raises(TransportError, match="this transport was closed during the request"):
        await asking


async def test_a_cancelled_request_is_cancelled_in_the_server(server: HandlerServer, client: Client) -> None:
    server.faults.hold()
    asking = asyncio.ensure_future(client.get(Pod, "a"))
    while not server.faults.requests:
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_informers_run_on_it(client: Client) -> None:
    await client.create(config_map("before"))
    seen: asyncio.Queue[str] = asyncio.Queue()
    async with InformerFactory(client) as informers:
        maps = informers.for_kind(ConfigMap, namespace="default")
        maps.on_event(added=lambda event: seen.put_nowait(event.object.metadata.name))
        await informers.wait_synced()
        assert await seen.get() == "before"
        await client.create(config_map("after"))
        assert await seen.get() == "after"


async def test_two_servers_share_nothing() -> None:
    async with HandlerServer() as one, HandlerServer() as other:
        await one.client().create(config_map("a"))
        assert one.config.name != other.config.name
        with pytest.raises(NotFound):
            await other.client().get(ConfigMap, "a")


async def test_it_has_the_namespaces_of_a_cluster_and_all_else_on_request(client: Client) -> None:
    assert {one.metadata.name async for one in client.list(Namespace)} == {"default", "kube-system", "kube-public", "kube-node-lease"}
    assert [one async for one in client.list(ClusterRole)] == []
    async with HandlerServer(provision=True) as whole:
        assert (await whole.client().get(ClusterRole, "cluster-admin")).metadata.name == "cluster-admin"


async def test_a_user_that_is_no_administrator_is_refused_as_by_the_server(server: HandlerServer) -> None:
    with pytest.raises(Forbidden, match='User "alice" cannot list resource "pods"'):
        await server.client(user="alice", groups=()).list(Pod, namespace=ALL_NAMESPACES)


async def test_its_time_is_the_tests() -> None:
    clock = FakeClock(datetime(2030, 1, 1, tzinfo=UTC))
    async with HandlerServer(clock=clock) as server:
        made = await server.client().create(config_map("a"))
        assert made.metadata.creation_timestamp == datetime(2030, 1, 1, tzinfo=UTC)


async def test_after_a_restart_objects_are_there_and_watches_start_again(server: HandlerServer, client: Client) -> None:
    made = await client.create(config_map("a"))
    await client.create(config_map("b"))
    async with server.transport() as transport, transport.stream("GET", "/api/v1/configmaps", query={"watch": True}) as stream:
        await server.restart()
        with pytest.raises(TransportError, match="the server ended the connection in the middle"):
            async for _ in stream.chunks():
                pass
    assert (await client.get(ConfigMap, "a")).metadata.uid == made.metadata.uid
    async with client.watch(ConfigMap, resource_version=made.metadata.resource_version, namespace=ALL_NAMESPACES) as events:
        with pytest.raises(Expired):
            await anext(aiter(events))
    await server.restart(forget=True)
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a")


async def test_what_needs_a_connection_says_what_to_use(server: HandlerServer, client: Client) -> None:
    from kubeloop.serving.answer import Hijack

    async def nothing(_: object) -> None:
        return

    server.faults.react(lambda _: Hijack(nothing))
    with pytest.raises(TransportError, match="use a server with sockets"):
        async with client.transport.upgrade("POST", "/api/v1/namespaces/default/pods/a/exec", protocol="websocket"):
            pass


async def test_a_reader_that_falls_behind_holds_the_server_back_and_loses_nothing(client: Client) -> None:
    async with client.watch(ConfigMap, namespace=ALL_NAMESPACES) as events:
        for number in range(6):
            await client.create(config_map(f"n{number}", text="x" * 600_000))
        reader = aiter(events)
        assert [(await anext(reader)).object.metadata.name for _ in range(6)] == [f"n{number}" for number in range(6)]


async def test_a_stale_update_conflicts(client: Client) -> None:
    made = await client.create(config_map("a"))
    await client.update(await client.get(ConfigMap, "a"))
    changed = await client.get(ConfigMap, "a")
    changed.data["k"] = "v"
    await client.update(changed)
    made.data["k"] = "other"
    with pytest.raises(Conflict):
        await client.update(made)


@pytest.mark.parametrize("allowed", [pytest.param(True, id="with the option"), pytest.param(False, id="by default they are refused")])
async def test_endpoints_on_loopback_are_stored(allowed: bool) -> None:
    piece = EndpointSlice.from_dict(
        {"metadata": {"name": "web-1"}, "addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.9"]}], "ports": [{"port": 8080}]}
    )
    async with HandlerServer(loopback_endpoints=allowed) as server:
        if allowed:
            assert (await server.client().create(piece)).endpoints[0].addresses == ["127.0.0.9"]
        else:
            with pytest.raises(Invalid, match="may not be in the loopback range"):
                await server.client().create(piece)
