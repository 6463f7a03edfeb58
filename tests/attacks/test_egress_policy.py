"""Objects that ask the server to dial somewhere for their writers: a cloud's metadata, other machines, the server's own."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kubeloop.client import Client
from kubeloop.meta import ApiError
from kubeloop.testing import TlsTestServer
from kubeloop.transport import Transport
from kubeloop.types import JSONObject

Ask = Callable[..., Any]

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MAPS = "/api/v1/namespaces/default/configmaps"
METADATA = "169.254.169.254"
_NUMBERS = itertools.count(1)


async def asked(transport: Transport, method: str, path: str, body: JSONObject | None = None, content: str = "application/json") -> Any:
    data = None if body is None else json.dumps(body).encode()
    return json.loads((await transport.request(method, path, body=data, content_type=content)).body)


async def refusal(transport: Transport, method: str, path: str, body: JSONObject | None = None) -> ApiError:
    with pytest.raises(ApiError) as met:
        await asked(transport, method, path, body)
    return met.value


@pytest.fixture
async def bare(in_loop_server: TlsTestServer) -> AsyncIterator[Transport]:
    async with in_loop_server.transport() as transport:
        yield transport


def webhook(client_config: JSONObject) -> JSONObject:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    hook = {"name": "w.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 1}
    return {"metadata": {"name": "w"}, "webhooks": [{**hook, "clientConfig": client_config, "rules": [rule]}]}


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(f"https://{METADATA}/latest/meta-data", id="a cloud's metadata"),
        pytest.param("https://10.0.0.1/", id="a private network"),
        pytest.param("https://192.0.2.1:8443/", id="another network"),
        pytest.param(f"https://[::ffff:{METADATA}]/", id="written in version 6"),
        pytest.param("https://[::ffff:a9fe:a9fe]/", id="written in version 6, in hexadecimal"),
        pytest.param("https://[fd00:ec2::254]/", id="a cloud's metadata of version 6"),
        pytest.param("https://[fe80::1]/", id="the link"),
        pytest.param("https://[64:ff9b::a9fe:a9fe]/", id="through a translator of addresses"),
        pytest.param("https://2852039166/", id="as one number"),
        pytest.param("https://0xa9fea9fe/", id="as one hexadecimal number"),
        pytest.param("https://169.16689662/", id="in two parts"),
        pytest.param("https://0.0.0.0/", id="the unspecified address"),
        pytest.param("https://[::]/", id="that of version 6"),
    ],
)
async def test_a_webhook_elsewhere_is_not_dialled(bare: Transport, url: str) -> None:
    await asked(bare, "POST", HOOKS, webhook({"url": url}))
    refused = await refusal(bare, "POST", MAPS, {"metadata": {"name": "a"}})
    assert refused.status.code == 500
    assert "--allow-remote-backends" in refused.status.message


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://127.0.0.1/", id="without TLS"),
        pytest.param(f"https://127.0.0.1@{METADATA}/", id="a user who looks like the host"),
        pytest.param("https://user:password@127.0.0.1/", id="a password"),
        pytest.param("https://127.0.0.1/?x=y", id="a query"),
        pytest.param("https://127.0.0.1/#x", id="a fragment"),
        pytest.param("file:///etc/passwd", id="a file"),
        pytest.param("gopher://127.0.0.1/", id="another protocol"),
        pytest.param("//127.0.0.1/", id="no scheme"),
        pytest.param("https://", id="no host"),
    ],
)
@pytest.mark.server
async def test_a_url_of_a_webhook_is_plain(client: Client, url: str) -> None:
    refused = await refusal(client.transport, "POST", f"{HOOKS}?dryRun=All", webhook({"url": url}))
    assert refused.status.code == 422, refused.status.message


@pytest.mark.parametrize(
    ("addresses", "dialled"),
    [
        pytest.param((METADATA,), (), id="elsewhere"),
        pytest.param((METADATA, "127.0.0.1"), ("127.0.0.1",), id="elsewhere and here"),
        pytest.param((f"::ffff:{METADATA}", "::1"), ("::1",), id="in version 6"),
    ],
)
async def test_a_name_counts_for_the_addresses_it_has_when_it_is_dialled(
    in_loop_server: TlsTestServer, bare: Transport, monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...], dialled: tuple[str, ...]
) -> None:
    """It is resolved once for one call, and its addresses are dialled, not its name."""
    loop, real = asyncio.get_running_loop(), asyncio.get_running_loop().getaddrinfo
    resolved: list[str] = []
    tried: list[str] = []

    async def resolve(host: str, port: Any, **rest: Any) -> Any:
        if host == "sneaky.example.com":
            resolved.append(host)
            return [(socket.AF_INET6 if ":" in one else socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 0)) for one in addresses]
        if port == 1:
            tried.append(host)
        return await real(host, port, **rest)

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    await asked(bare, "POST", HOOKS, webhook({"url": "https://sneaky.example.com:1/"}))
    refused = await refusal(bare, "POST", MAPS, {"metadata": {"name": "a"}})
    assert refused.status.code == 500
    assert ("--allow-remote-backends" in refused.status.message) is not bool(dialled)
    assert len(resolved) == 1
    assert set(tried) <= set(dialled)


@pytest.mark.parametrize(
    "address",
    [
        pytest.param(METADATA, id="a cloud's metadata"),
        pytest.param("127.0.0.1", id="the server's own machine"),
        pytest.param("224.0.0.1", id="all of the link"),
        pytest.param("0.0.0.0", id="nothing"),
    ],
)
@pytest.mark.server
async def test_endpoints_are_no_special_addresses(client: Client, address: str) -> None:
    port = {"name": "https", "port": 443, "protocol": "TCP"}
    slices = {
        "metadata": {"name": "s", "labels": {"kubernetes.io/service-name": "s"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]}],
        "ports": [port],
    }
    home = f"/apis/discovery.k8s.io/v1/namespaces/{client.namespace}/endpointslices"
    assert (await refusal(client.transport, "POST", f"{home}?dryRun=All", slices)).status.code == 422
    endpoints = {"metadata": {"name": "s"}, "subsets": [{"addresses": [{"ip": address}], "ports": [port]}]}
    home = f"/api/v1/namespaces/{client.namespace}/endpoints"
    assert (await refusal(client.transport, "POST", f"{home}?dryRun=All", endpoints)).status.code == 422


@pytest.mark.parametrize(
    "address",
    [
        pytest.param(METADATA, id="a cloud's metadata"),
        pytest.param("127.0.0.1", id="loopback"),
        pytest.param("::1", id="loopback of version 6"),
        pytest.param("fe80::1", id="the link"),
        pytest.param("224.0.0.1", id="all of the link"),
    ],
)
@pytest.mark.server
async def test_proxies_lead_to_no_special_addresses(client: Client, address: str) -> None:
    transport, merge = client.transport, "application/merge-patch+json"
    pods = f"/api/v1/namespaces/{client.namespace}/pods"
    # The scheduler does not exist: no component other than this test may give the pod an address.
    spec = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}
    await asked(transport, "POST", pods, {"metadata": {"name": "p"}, "spec": spec})
    status = {"status": {"podIP": address, "podIPs": [{"ip": address}]}}
    await asked(transport, "PATCH", f"{pods}/p/status", status, merge)
    node = f"attacked-{os.getpid()}-{next(_NUMBERS)}"
    await asked(transport, "POST", "/api/v1/nodes", {"metadata": {"name": node}})
    try:
        where = {"status": {"addresses": [{"type": "InternalIP", "address": address}]}}
        await asked(transport, "PATCH", f"/api/v1/nodes/{node}/status", where, merge)
        for path in (f"{pods}/p/proxy/", f"{pods}/p:80/proxy/latest", f"{pods}/https:p:443/proxy/"):
            assert (await refusal(transport, "GET", path)).status.message == "address not allowed"
        for path in (f"/api/v1/nodes/{node}/proxy/", f"/api/v1/nodes/{node}:80/proxy/latest", f"/api/v1/nodes/https:{node}:443/proxy/"):
            refused = await refusal(transport, "GET", path)
            assert (refused.status.code, refused.status.message) == (400, "address not allowed")
    finally:
        await asked(transport, "DELETE", f"/api/v1/nodes/{node}")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("GET", "/api/v1/namespaces/{home}/services/169.254.169.254:80/proxy/", id="a service named as an address"),
        pytest.param("GET", "/api/v1/namespaces/{home}/pods/169.254.169.254:80/proxy/", id="a pod named as an address"),
        pytest.param("GET", "/api/v1/nodes/169.254.169.254:80/proxy/", id="a node named as an address"),
        pytest.param("GET", "/api/v1/namespaces/{home}/services/http:169.254.169.254:80/proxy/x", id="with a scheme"),
    ],
)
@pytest.mark.server
async def test_a_name_in_a_path_is_the_name_of_an_object(client: Client, method: str, path: str) -> None:
    refused = await refusal(client.transport, method, path.replace("{home}", client.namespace))
    assert refused.status.code == 404, refused.status.message
