"""``LocalCluster`` and the faults of ``TlsTestServer``, as their users use them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.endpoints import api_errors
from kubeloop.meta import ConfigError, ConnectionRefused, Expired, Forbidden, ObjectMeta
from kubeloop.testing import LocalCluster, TlsTestServer
from kubeloop.transport import Transport

pytestmark = pytest.mark.embedded


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_cluster_runs_while_the_context_lasts_and_leaves_nothing() -> None:
    with LocalCluster(controllers=False) as cluster:
        pid, folder = cluster.pid, cluster.kubeconfig.parent
        assert cluster.config.server == cluster.url
        assert cluster.ca_file.read_bytes().startswith(b"-----BEGIN CERTIFICATE-----")
        assert "serving at" in cluster.log
        assert alive(pid)
    assert not alive(pid)
    assert not folder.exists()
    with pytest.raises(ConfigError, match="the cluster is not running"):
        _ = cluster.kubeconfig


async def test_a_cluster_stores_endpoints_on_loopback_where_its_user_wants_them() -> None:
    piece = EndpointSlice.from_dict({"metadata": {"name": "web-1"}, "addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.9"]}]})
    async with LocalCluster(controllers=False, loopback_endpoints=True) as cluster:
        assert (await cluster.client.create(piece)).endpoints[0].addresses == ["127.0.0.9"]


async def test_an_async_cluster_has_a_client() -> None:
    async with LocalCluster(controllers=False) as cluster:
        await cluster.client.create(ConfigMap(metadata=ObjectMeta(name="a"), data={"k": "v"}))
        assert (await cluster.client.get(ConfigMap, "a")).data == {"k": "v"}


def test_a_cluster_that_cannot_start_says_why() -> None:
    with pytest.raises(ConfigError, match=r"(?s)the server ended with exit status 1:.*cannot read token file nosuch\.csv"):
        LocalCluster(token_auth_file=Path("nosuch.csv")).__enter__()


async def test_closing_stops_a_cluster_that_was_started_later_or_never() -> None:
    cluster = LocalCluster(controllers=False)
    async with cluster.closing():
        await cluster.start()
        pid = cluster.pid
    assert not alive(pid)
    async with LocalCluster().closing():
        pass


async def test_a_test_commands_refusals_cuts_and_expiries(in_loop_server: TlsTestServer) -> None:
    faults = in_loop_server.faults
    async with Client(Transport(in_loop_server.config)) as client:
        faults.refuse(api_errors.refusal(403, "Forbidden", "not today"), matching=lambda request: request.method == "GET")
        with pytest.raises(Forbidden, match="not today"):
            await client.get(ConfigMap, "a")
        faults.expire_next()
        with pytest.raises(Expired):
            await client.list(ConfigMap, namespace=ALL_NAMESPACES)
        listed = await client.list(ConfigMap, namespace=ALL_NAMESPACES)
        async with client.watch(ConfigMap, resource_version=listed.resource_version, namespace=ALL_NAMESPACES) as events:
            await client.create(ConfigMap(metadata=ObjectMeta(name="a")))
            await anext(aiter(events))
            assert faults.cut_streams() == 1
    assert any(line.startswith("GET /api/v1/configmaps?") and "watch=" in line for line in faults.requests)


async def test_a_test_holds_requests_until_it_lets_go(in_loop_server: TlsTestServer) -> None:
    async with Client(Transport(in_loop_server.config)) as client:
        let_go = in_loop_server.faults.hold(matching=lambda request: request.path.endswith("/configmaps"))
        listing = asyncio.ensure_future(client.list(ConfigMap, namespace=ALL_NAMESPACES))
        done, _ = await asyncio.wait({listing}, timeout=0.05)
        assert not done
        let_go()
        await asyncio.wait_for(listing, 5)


async def test_a_cluster_that_was_killed_comes_back_at_its_address_for_the_same_clients_with_restarted_versions() -> None:
    async with LocalCluster(controllers=False) as cluster:
        for name in "abc":
            made = await cluster.client.create(ConfigMap(metadata=ObjectMeta(name=name)))
        before = cluster.pid
        cluster.kill()
        with pytest.raises(ConnectionRefused):
            await cluster.client.get(ConfigMap, "a")
        await asyncio.to_thread(cluster.restart)
        assert not alive(before)
        listed = await cluster.client.list(ConfigMap, namespace=ALL_NAMESPACES)
        assert [one.metadata.name for one in listed if one.metadata.namespace == "default"] == []
        assert int(listed.metadata.resource_version) < int(made.metadata.resource_version)


async def test_a_cluster_keeps_no_more_history_than_configured() -> None:
    async with LocalCluster(controllers=False, history_revisions=4) as cluster:
        versions = [(await cluster.client.create(ConfigMap(metadata=ObjectMeta(name=f"n{n}")))).metadata.resource_version for n in range(9)]
        async with cluster.client.watch(ConfigMap, resource_version=versions[-4], namespace=ALL_NAMESPACES) as events:
            assert (await anext(aiter(events))).object.metadata.name == "n6"
        with pytest.raises(Expired):
            async with cluster.client.watch(ConfigMap, resource_version=versions[0], namespace=ALL_NAMESPACES) as events:
                await anext(aiter(events))


@pytest.mark.parametrize("forget", [False, True], ids=["with its store", "without it"])
async def test_a_server_in_the_loop_comes_back_after_a_crash(in_loop_server: TlsTestServer, forget: bool) -> None:
    async with Client(Transport(in_loop_server.config)) as client:
        made = await client.create(ConfigMap(metadata=ObjectMeta(name="a")))
        await in_loop_server.restart(forget=forget)
        listed = await client.list(ConfigMap, namespace="default")
        assert [one.metadata.name for one in listed] == ([] if forget else ["a"])
        if not forget:
            assert listed[0].metadata.resource_version == made.metadata.resource_version
