"""Caching mode over TLS in front of the embedded server: kubectl, informers, users, and a server that loses its connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from kubeloop.cache import InformerFactory
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.config import load_config
from kubeloop.meta import Unstructured
from kubeloop.proxy.lists import COMMIT
from kubeloop.testing import TlsTestServer
from kubeloop.transport import Transport
from tests.proxy.conftest import ADMIN, DORA, MERGE, OTTO, Proxied, StartProxy, pod_of
from tests.proxy.rules.rule_texts import rule
from tests.proxy.samples import METADATA_LIST

pytestmark = pytest.mark.usefixtures("shop")

HIDE_BACK = rule(match=[{"resources": ["pods"], "labelSelector": "tier=back"}], name="hide-back")
RENOTE = rule({"set": {"metadata.annotations.note": "changed"}}, name="renote", match=[{"resources": ["pods"]}])
PODS = "/api/v1/namespaces/shop/pods"
POD = Unstructured.for_kind("v1", "Pod", plural="pods", namespaced=True)


@asynccontextmanager
async def client_of(proxied: Proxied) -> AsyncIterator[Client]:
    file = proxied.folder / "kubeconfig"
    file.write_bytes(proxied.proxy.kubeconfig())
    async with Client(Transport(load_config(file))) as client:
        yield client


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def metric(proxied: Proxied, name: str, labels: str = '{group="",version="v1",resource="pods"}') -> int:
    """Return the value of a metric; 0 if there is none."""
    line = next((line for line in proxied.proxy.metrics().splitlines() if line.startswith(f"{name}{labels} ")), "x 0")
    return int(line.rpartition(" ")[2])


async def test_lists_of_the_cache_equal_those_of_the_server(start_proxy: StartProxy) -> None:
    async with start_proxy(cache=True) as proxied:
        client, direct = await proxied.client(ADMIN), await proxied.direct()
        for query in ("", "?resourceVersion=0", "?labelSelector=tier%3Dback", "?fieldSelector=metadata.name%3Dfront-1"):
            for path in ("/api/v1/pods", PODS, "/apis/apps/v1/deployments", "/api/v1/namespaces"):
                found, expected = await client("GET", path + query), await direct("GET", path + query)
                assert found.status == 200
                assert found.tree["items"] == expected.tree["items"], (path, query)
                assert {name: found.tree[name] for name in ("kind", "apiVersion")} == {
                    name: expected.tree[name] for name in ("kind", "apiVersion")
                }
        one = await client("GET", f"{PODS}/front-0?resourceVersion=0")
        assert one.body == (await direct("GET", f"{PODS}/front-0")).body
        assert metric(proxied, "kubeloop_proxy_cache_requests_total", '{outcome="cached"}') == 17
        assert metric(proxied, "kubeloop_proxy_cache_requests_total", '{outcome="forwarded"}') == 0


@pytest.mark.parametrize("widgets", [pytest.param([], id="no objects"), pytest.param(["a", "b"], id="two objects")])
async def test_lists_of_custom_resources_are_written_as_the_server_writes_them(start_proxy: StartProxy, widgets: list[str]) -> None:
    async with start_proxy(cache=True) as proxied:
        client, direct = await proxied.client(ADMIN), await proxied.direct()
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        named = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetCollection"}
        spec = {"group": "example.com", "scope": "Namespaced", "names": named, "versions": [version]}
        definition = {"metadata": {"name": "widgets.example.com"}, "spec": spec}
        assert (await direct("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)).status == 201
        path = "/apis/example.com/v1/namespaces/shop/widgets"
        async with asyncio.timeout(20):
            while (await direct("GET", path)).status != 200:
                await asyncio.sleep(0.01)
        for name in widgets:
            body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}}
            assert (await direct("POST", path, body)).status == 201
        for accept in ("application/json", METADATA_LIST):
            for query in ("", "?labelSelector=none"):
                found, expected = await client("GET", path + query, Accept=accept), await direct("GET", path + query, Accept=accept)
                assert found.tree == expected.tree, (accept, query)
        assert metric(proxied, "kubeloop_proxy_cache_requests_total", '{outcome="forwarded"}') == 0


async def test_a_long_list_is_compressed_for_a_client_that_accepts_it(start_proxy: StartProxy) -> None:
    async with start_proxy(cache=True) as proxied:
        client, direct = await proxied.client(ADMIN), await proxied.direct()
        path = "/api/v1/namespaces/shop/configmaps"
        for number in range(3):
            await direct("POST", path, {"metadata": {"name": f"large-{number}"}, "data": {"text": "x" * (COMMIT // 2)}})
        packed = await client("GET", path, Accept_Encoding="gzip")
        plain = await client("GET", path, Accept_Encoding="identity")
        assert (packed.headers.get("Content-Encoding"), plain.headers.get("Content-Encoding")) == ("gzip", None)
        assert packed.tree == plain.tree


async def test_a_consistent_list_shows_each_write_that_was_done_before(start_proxy: StartProxy) -> None:
    async with start_proxy(cache=True) as proxied:
        client, direct = await proxied.client(ADMIN), await proxied.direct()
        for number in range(30):
            await direct("POST", PODS, pod_of(f"new-{number}"))
            if number % 3 == 0:
                await direct("POST", "/api/v1/namespaces/shop/configmaps", {"metadata": {"name": f"other-{number}"}})
            assert f"new-{number}" in (await client("GET", PODS)).names
        assert metric(proxied, "kubeloop_proxy_cache_comparisons_total") > 0
        assert metric(proxied, "kubeloop_proxy_cache_upstream_watches") == 1


async def test_informers_through_the_cache_share_one_watch_and_see_what_the_rules_leave(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_BACK, RENOTE, cache=True) as proxied:
        direct = await proxied.direct()
        async with (
            client_of(proxied) as first,
            client_of(proxied) as second,
            InformerFactory(first) as ones,
            InformerFactory(second) as twos,
        ):
            informers = [ones.for_kind(POD, namespace=ALL_NAMESPACES), twos.for_kind(POD, namespace="shop")]
            for informer in informers:
                await informer.wait_synced(timeout=20)
                assert sorted(head.name for head in informer.lister.heads()) == ["front-0", "front-1"]
            for number in range(20):
                await direct("POST", PODS, pod_of(f"p-{number}", "back" if number % 2 else "front"))
            for number in range(0, 20, 4):
                await direct("PATCH", f"{PODS}/p-{number}", {"metadata": {"labels": {"tier": "back"}}}, Content_Type=MERGE)
            for number in range(1, 20, 4):
                await direct("PATCH", f"{PODS}/p-{number}", {"metadata": {"labels": {"tier": "front"}}}, Content_Type=MERGE)
            await direct("DELETE", f"{PODS}/p-2?gracePeriodSeconds=0")
            expected = sorted(
                item["metadata"]["name"] for item in (await direct("GET", f"{PODS}?labelSelector=tier%3Dfront")).tree["items"]
            )
            for informer in informers:
                lister = informer.lister
                await until(lambda lister=lister: sorted(head.name for head in lister.heads()) == expected)  # type: ignore[misc]
                assert {pod.metadata.annotations["note"] for pod in lister.list()} == {"changed"}
            assert metric(proxied, "kubeloop_proxy_cache_watchers") == 2
            assert metric(proxied, "kubeloop_proxy_cache_upstream_watches") == 1


async def test_kubectl_through_the_cache(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_BACK, RENOTE, cache=True) as proxied:
        kubectl = proxied.kubectl()
        table, names, found, everything = await asyncio.gather(
            kubectl("get", "pods", "-n", "shop", "--no-headers"),
            kubectl("get", "pods", "-n", "shop", "-o", "name"),
            kubectl("get", "pods", "-n", "shop", "-o", "json", "--chunk-size=0"),
            kubectl("get", "pods,deployments", "-A", "-o", "name", "--chunk-size=0"),
        )
        assert [line.split()[0] for line in table.splitlines()] == ["front-0", "front-1"]
        assert names.split() == ["pod/front-0", "pod/front-1"]
        assert {item["metadata"]["annotations"]["note"] for item in json.loads(found)["items"]} == {"changed"}
        assert "back-0" not in everything
        watching = await kubectl.start("get", "pods", "-n", "shop", "-o", "name", "--watch-only", "--request-timeout=20s")
        await asyncio.sleep(1)
        await (await proxied.direct())("POST", PODS, pod_of("late"))
        assert watching.stdout is not None
        async with asyncio.timeout(20):
            assert await watching.stdout.readline() == b"pod/late\n"
        watching.kill()
        await watching.wait()


async def test_each_user_gets_only_what_the_server_allows_it(start_proxy: StartProxy) -> None:
    async with start_proxy(cache=True) as proxied:
        admin, dora, anonymous = await proxied.client(ADMIN), await proxied.client(DORA), await proxied.client()
        token = await proxied.client(token="otto-token")
        direct = await proxied.direct()
        assert (await admin("GET", "/api/v1/pods?resourceVersion=0")).status == 200
        assert (await dora("GET", f"{PODS}?resourceVersion=0")).status == 200
        assert (await token("GET", f"{PODS}?resourceVersion=0")).status == 200
        for client, user in ((dora, "dora"), (token, "otto"), (anonymous, "system:anonymous")):
            for query in ("?resourceVersion=0", "?watch=true&resourceVersion=0", ""):
                reply = await client("GET", f"/api/v1/pods{query}")
                assert reply.status == 403
                verb = "watch" if "watch" in query else "list"
                text = f'pods is forbidden: User "{user}" cannot {verb} resource "pods" in API group "" at the cluster scope'
                assert reply.tree["message"] == text
        assert (await token("GET", "/api/v1/pods", Authorization="Bearer wrong")).status in (401, 403)
        await direct("DELETE", "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings/devs")


async def test_users_with_other_rules_have_other_watches(start_proxy: StartProxy) -> None:
    hide = rule(match=[{"resources": ["pods"], "labelSelector": "tier=back", "userGroups": ["devs"]}], name="hide-back")
    async with start_proxy(hide, cache=True) as proxied:
        dora, otto = await proxied.client(DORA), await proxied.client(OTTO)
        assert (await dora("GET", f"{PODS}?resourceVersion=0")).names == ["front-0", "front-1"]
        assert (await otto("GET", f"{PODS}?resourceVersion=0")).names == ["back-0", "front-0", "front-1"]
        path = f"{PODS}?watch=true&resourceVersion=0&timeoutSeconds=3"

        async def seen(client: Any) -> list[str]:
            async with client.watch(path) as events:
                return [event["object"]["metadata"]["name"] async for event in events]

        of_dora, of_otto = await asyncio.gather(seen(dora), seen(otto))
        assert (of_dora, of_otto) == (["front-0", "front-1"], ["back-0", "front-0", "front-1"])


async def test_a_reload_of_rules_ends_watches_and_clients_list_again(start_proxy: StartProxy) -> None:
    async with start_proxy(HIDE_BACK, cache=True) as proxied, client_of(proxied) as client, InformerFactory(client) as informers:
        pods = informers.for_kind(POD, namespace="shop")
        await pods.wait_synced(timeout=20)
        proxied.write_rules(rule(match=[{"resources": ["pods"], "labelSelector": "tier=front"}], name="hide-front"))
        await until(lambda: sorted(head.name for head in pods.lister.heads()) == ["back-0"])
        proxied.write_rules(rule(match=[{"resources": ["secrets"]}], name="other"))
        await until(lambda: sorted(head.name for head in pods.lister.heads()) == ["back-0", "front-0", "front-1"])


async def test_watches_and_reads_at_0_survive_a_crash_of_the_server(start_proxy: StartProxy, upstream: TlsTestServer) -> None:
    async with start_proxy(cache=True) as proxied:
        client = await proxied.client(ADMIN)
        before = await client("GET", f"{PODS}?resourceVersion=0")
        async with client.watch(f"{PODS}?watch=true&resourceVersion={before.tree['metadata']['resourceVersion']}") as events:
            await upstream.crash()
            assert (await client("GET", f"{PODS}?resourceVersion=0")).body == before.body
            assert (await client("GET", PODS)).status == 503
            await upstream.come_back()
            await (await proxied.direct())("POST", PODS, pod_of("late"))
            async with asyncio.timeout(20):
                event = await anext(events)
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "late")
            assert "late" in (await client("GET", PODS)).names


async def test_a_proxy_that_stops_ends_watches_without_an_error_so_that_clients_resume(start_proxy: StartProxy) -> None:
    async with start_proxy(cache=True) as proxied:
        client = await proxied.client(ADMIN)
        version = (await client("GET", f"{PODS}?resourceVersion=0")).tree["metadata"]["resourceVersion"]
        async with client.watch(f"{PODS}?watch=true&resourceVersion={version}") as events:
            await until(lambda: proxied.proxy.open_watches == 1)
            await proxied.proxy.stop()
            with pytest.raises((StopAsyncIteration, aiohttp.ClientPayloadError)):
                await anext(events)
        assert proxied.proxy.open_watches == 0
