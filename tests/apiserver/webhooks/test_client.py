"""Calls of webhooks: reused connections, resolved services, bounded responses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeloop.apiserver.outbound.client import WebhookClient
from kubeloop.apiserver.outbound.failure import CallFailed, why_no_answer
from kubeloop.apiserver.outbound.target import ServiceName, ServiceResolver, target_of
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.server.bootstrap import builtin_registry
from kubeloop.apiserver.storage import MemoryStorage
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.schema import builtin
from kubeloop.timing import FakeClock
from kubeloop.types import JSONObject
from tests.apiserver.webhooks.scripted import Hook, Raw, scripted_hook


async def nowhere(service: ServiceName) -> tuple[str, int]:
    raise CallFailed(f'service "{service.name}" not found')


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    async with scripted_hook() as found:
        found.scripts["/w"] = lambda _: Raw(b"{}")
        yield found


@pytest.fixture
async def caller() -> AsyncIterator[WebhookClient]:
    made = WebhookClient(nowhere, FakeClock())
    yield made
    await made.close()


async def test_the_next_call_uses_the_same_connection(hook: Hook, caller: WebhookClient) -> None:
    for _ in range(3):
        assert await caller.post(hook.client_config("/w"), {}, timeout=5) == b"{}"
    assert hook.connections == 1


async def test_an_idle_connection_grows_old(hook: Hook) -> None:
    clock = FakeClock()
    caller = WebhookClient(nowhere, clock)
    try:
        await caller.post(hook.client_config("/w"), {}, timeout=5)
        await clock.advance(60)
        await caller.post(hook.client_config("/w"), {}, timeout=5)
        assert hook.connections == 2
    finally:
        await caller.close()


async def test_a_connection_that_the_webhook_closed_is_made_again(hook: Hook, caller: WebhookClient) -> None:
    await caller.post(hook.client_config("/w"), {}, timeout=5)
    await hook.drop_connections()
    assert await caller.post(hook.client_config("/w"), {}, timeout=5) == b"{}"
    assert hook.connections == 2


async def test_calls_at_the_same_time_have_separate_connections(hook: Hook, caller: WebhookClient) -> None:
    hook.scripts["/w"] = lambda _: Raw(b"{}", delay=0.02)
    answers = await asyncio.gather(*(caller.post(hook.client_config("/w"), {}, timeout=5) for _ in range(5)))
    assert (answers, hook.connections) == ([b"{}"] * 5, 5)


async def test_a_call_under_way_ends_with_the_caller(hook: Hook, caller: WebhookClient) -> None:
    hook.scripts["/w"] = lambda _: Raw(b"{}", delay=30)
    call = asyncio.ensure_future(caller.post(hook.client_config("/w"), {}, timeout=30))
    while "/w" not in hook.seen:
        await asyncio.sleep(0.001)
    await caller.close()
    assert call.cancelled()


async def test_a_webhook_gets_its_timeout_and_the_name_by_which_it_is_called(hook: Hook, caller: WebhookClient) -> None:
    await caller.post(hook.client_config("/w"), {"a": 1}, timeout=7)
    headers = hook.headers[0]
    assert (hook.queries, hook.seen["/w"]) == (["timeout=7s"], [{"a": 1}])
    assert (headers["Host"], headers["User-Agent"]) == (f"127.0.0.1:{hook.port}", "kube-apiserver-admission")


async def test_a_service_is_dialled_where_it_resolves_to_and_must_show_its_own_name() -> None:
    async with scripted_hook(names=("svc.ns.svc",), ip="192.0.2.1") as hook:
        hook.scripts["/w"] = lambda _: Raw(b"{}")

        async def resolve(_: ServiceName) -> tuple[str, int]:
            return "127.0.0.1", hook.port

        config = {"caBundle": hook.client_config("")["caBundle"], "service": {"namespace": "ns", "name": "svc", "path": "/w"}}
        other = {**config, "service": {**config["service"], "name": "other"}}
        caller = WebhookClient(resolve, FakeClock())
        try:
            assert await caller.post(config, {}, timeout=5) == b"{}"
            assert hook.headers[0]["Host"] == "svc.ns.svc:443"
            with pytest.raises(CallFailed, match=r"x509: certificate is not valid for other.ns.svc"):
                await caller.post(other, {}, timeout=5)
        finally:
            await caller.close()


async def test_a_redirect_is_a_failure(hook: Hook, caller: WebhookClient) -> None:
    hook.scripts["/w"] = lambda _: Raw(b"", 302, headers={"Location": "/other"})
    with pytest.raises(CallFailed, match="status code 302 but did not return more information"):
        await caller.post(hook.client_config("/w"), {}, timeout=5)


async def test_a_server_that_does_not_speak_tls_is_a_distinct_error(caller: WebhookClient) -> None:
    async def plain(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(CallFailed, match="http: server gave HTTP response to HTTPS client"):
            await caller.post({"url": f"https://127.0.0.1:{port}/"}, {}, timeout=5)


@pytest.mark.parametrize(
    ("config", "url", "port"),
    [
        ({"url": "https://example.com"}, "https://example.com/", 443),
        ({"url": "https://example.com:8443/a//b/../c/"}, "https://example.com:8443/a/c", 8443),
        ({"url": "https://[::1]:8443/a"}, "https://[::1]:8443/a", 8443),
        ({"service": {"name": "a", "namespace": "b"}}, "https://a.b.svc:443/", 443),
        ({"service": {"name": "a", "namespace": "b", "port": 9, "path": "/x/"}}, "https://a.b.svc:9/x", 9),
    ],
)
def test_where_a_client_config_leads(config: JSONObject, url: str, port: int) -> None:
    target = target_of(config)
    assert (target.url, target.port) == (url, port)


def untrusted(code: int) -> ssl.SSLCertVerificationError:
    fault = ssl.SSLCertVerificationError(1, "certificate verify failed")
    fault.verify_code = code
    return fault


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "dial tcp host:1: connect: connection refused"),
        (OSError(113, "No route to host"), "dial tcp host:1: connect: no route to host"),
        (ConnectionResetError(104, "reset"), "read: connection reset by peer"),
        (untrusted(10), "tls: failed to verify certificate: x509: certificate has expired or is not yet valid"),
        (untrusted(18), "tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        (untrusted(62), "tls: failed to verify certificate: x509: certificate is not valid for host"),
    ],
)
def test_faults_in_gos_words(fault: OSError, words: str) -> None:
    assert why_no_answer(fault, "host", 1).startswith(words)


class Cluster:
    """Services and endpoints as stored, whatever validation would say of loopback addresses."""

    def __init__(self) -> None:
        clock = FakeClock()
        self.objects = Objects(MemoryStorage(clock))
        self.registry: Registry = builtin_registry(builtin(), clock)
        self.resolver = ServiceResolver(self.registry, self.objects)

    async def put(self, resource: str, obj: JSONObject, group: str = "") -> None:
        served = self.registry.get(GroupVersionResource(group, "v1", resource))
        assert served is not None
        metadata = {"namespace": "ns", **obj.pop("metadata")}
        await self.objects.write(served, {"apiVersion": "v1", "kind": served.kind, "metadata": metadata, **obj}, expected=0)

    async def service(self, **spec: Any) -> None:
        await self.put("services", {"metadata": {"name": "svc"}, "spec": {"ports": [{"name": "hook", "port": 443}], **spec}})

    async def resolve(self) -> tuple[str, int]:
        return await self.resolver.resolve(ServiceName("ns", "svc", 443))


def endpoint_slice(name: str, owner: str, *endpoints: JSONObject, port: str = "hook") -> JSONObject:
    labels = {"kubernetes.io/service-name": owner}
    return {"metadata": {"name": name, "labels": labels}, "ports": [{"name": port, "port": 9443}], "endpoints": list(endpoints)}


async def test_a_service_leads_to_a_ready_endpoint_of_its_port() -> None:
    cluster = Cluster()
    await cluster.service(clusterIP="10.0.0.9")
    unready: JSONObject = {"addresses": ["10.1.0.1"], "conditions": {"ready": False}}
    await cluster.put("endpointslices", endpoint_slice("a", "svc", unready, {"addresses": ["10.1.0.2"]}), "discovery.k8s.io")
    await cluster.put("endpointslices", endpoint_slice("b", "other", {"addresses": ["10.1.0.3"]}), "discovery.k8s.io")
    await cluster.put("endpointslices", endpoint_slice("c", "svc", {"addresses": ["10.1.0.4"]}, port="x"), "discovery.k8s.io")
    assert await cluster.resolve() == ("10.1.0.2", 9443)


async def test_without_slices_endpoints_count() -> None:
    cluster = Cluster()
    await cluster.service(clusterIP="None")
    await cluster.put("endpoints", {"metadata": {"name": "svc"}, "subsets": [{"addresses": [{"ip": "10.1.0.5"}], "ports": [
        {"name": "hook", "port": 9443}]}]})  # fmt: skip
    assert await cluster.resolve() == ("10.1.0.5", 9443)


async def test_a_service_without_endpoints_cannot_be_reached() -> None:
    cluster = Cluster()
    await cluster.service(clusterIP="10.0.0.9")
    with pytest.raises(CallFailed, match='no endpoints available for service "svc"'):
        await cluster.resolve()


async def test_an_external_name_is_dialled_as_it_stands() -> None:
    cluster = Cluster()
    await cluster.service(type="ExternalName", externalName="example.com")
    assert await cluster.resolve() == ("example.com", 443)
