"""The store of the NGINX ingress controller, its code unmodified, and client-go's informers see the Router's address behind the proxy.

The program is the same in all cases; only its kubeconfig leads to the API server or to the proxy.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from kubeloop import Client, ObjectMeta, Resource
from kubeloop.api.core import v1 as core
from kubeloop.api.core.v1 import EndpointAddress, Endpoints, EndpointSubset, Service, ServicePort, ServiceSpec
from kubeloop.api.discovery.v1 import Endpoint, EndpointConditions, EndpointPort, EndpointSlice
from kubeloop.api.networking.v1 import (
    Ingress,
    IngressBackend,
    IngressClass,
    IngressClassSpec,
    IngressServiceBackend,
    IngressSpec,
    ServiceBackendPort,
)
from kubeloop.proxy import ProxyOptions, ProxyServer
from tests.foreign.building import program
from tests.servers import ServerUnderTest

# The first test compiles the program.
pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

_RULES = Path(__file__).parents[2] / "examples" / "traffic_router" / "rules.yaml"
_ROUTER = "127.0.0.9:8080"
_READERS = ("store", "endpoints", "endpointslices")
_PATIENCE = 30.0


class StoreProgram:
    """The Go program. It prints what its readers see whenever it gets a line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, kubeconfig: Path, namespace: str) -> Self:
        command = await asyncio.to_thread(program, "router")
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        environment = {"HOME": "/nonexistent"}
        process = await asyncio.create_subprocess_exec(
            str(command), str(kubeconfig), namespace, "web", env=environment, stdin=pipe, stdout=pipe, stderr=null
        )
        return cls(process)

    async def stop(self) -> None:
        """Close its standard input, which ends it."""
        async with asyncio.timeout(_PATIENCE):
            await self._process.communicate(b"")

    async def view(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        line = await self._process.stdout.readline()
        assert line, f"the program ended with status {await self._process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def view_of(self, slices: set[str], endpoints: set[str]) -> dict[str, Any]:
        """Return the view in which all readers have the objects of these resource versions, and no others."""
        expected = {"store": slices, "endpointslices": slices, "endpoints": endpoints}
        async with asyncio.timeout(_PATIENCE):
            while True:
                view = await self.view()
                if all(set(view[name]["now"]) == versions for name, versions in expected.items()):
                    return view
                await asyncio.sleep(0.02)


@asynccontextmanager
async def _kubeconfig(server: ServerUnderTest, options: ProxyOptions | None, folder: Path) -> AsyncIterator[Path]:
    if options is None:
        yield server.kubeconfig
        return
    async with ProxyServer(server.config, options) as proxy:
        file = folder / "kubeconfig"
        file.touch(mode=0o600)
        file.write_bytes(proxy.kubeconfig())
        yield file


def _slice(name: str, addresses: dict[str, bool], port: int) -> EndpointSlice:
    """Return an EndpointSlice of the Service. ``addresses``: address -> whether it is ready."""
    return EndpointSlice(
        metadata=ObjectMeta(name=name, labels={"kubernetes.io/service-name": "web"}),
        address_type="IPv4",
        endpoints=[Endpoint(addresses=[ip], conditions=EndpointConditions(ready=ready)) for ip, ready in addresses.items()],
        ports=[EndpointPort(name="http", port=port, protocol="TCP")],
    )


def _endpoints(ready: str, unready: str, port: int) -> Endpoints:
    subset = EndpointSubset(
        addresses=[EndpointAddress(ip=ready)],
        not_ready_addresses=[EndpointAddress(ip=unready)],
        ports=[core.EndpointPort(name="http", port=port)],
    )
    return Endpoints(metadata=ObjectMeta(name="web"), subsets=[subset])


@pytest.fixture
async def shop(client: Client, namespace: str) -> AsyncIterator[Client]:
    """A client of a namespace with the Ingress and the Service ``web``."""
    await client.create(IngressClass(metadata=ObjectMeta(name=namespace), spec=IngressClassSpec(controller="k8s.io/ingress-nginx")))
    await client.create(Service(metadata=ObjectMeta(name="web"), spec=ServiceSpec(ports=[ServicePort(name="http", port=80)])))
    backend = IngressBackend(service=IngressServiceBackend(name="web", port=ServiceBackendPort(name="http")))
    spec = IngressSpec(ingress_class_name=namespace, default_backend=backend)
    await client.create(Ingress(metadata=ObjectMeta(name="web"), spec=spec))
    yield client
    await client.delete(IngressClass, namespace)


@pytest.mark.parametrize(
    ("proxied", "cache"),
    [
        pytest.param(False, False, id="without the proxy they see pods"),
        pytest.param(True, False, id="behind the proxy they see the Router only"),
        pytest.param(True, True, id="behind a caching proxy they see the Router only"),
    ],
)
async def test_readers_of_endpoints(
    shop: Client, server: ServerUnderTest, namespace: str, tmp_path: Path, proxied: bool, cache: bool
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(_RULES.read_text().replace("[shop]", f"[{namespace}]"))
    first = await shop.create(_slice("web-1", {"10.0.0.1": True, "10.0.0.2": False}, 8081))
    endpoints = await shop.create(_endpoints("10.0.0.1", "10.0.0.2", 8081))
    options = ProxyOptions(rules=rules, cache=cache) if proxied else None
    async with AsyncExitStack() as stack:
        kubeconfig = await stack.enter_async_context(_kubeconfig(server, options, tmp_path))
        reader = await StoreProgram.start(kubeconfig, namespace)
        stack.push_async_callback(reader.stop)
        view = await reader.view_of({_version(first)}, {_version(endpoints)})
        assert view["ingresses"] == 1
        listed = {_ROUTER} if proxied else {"10.0.0.1:8081", "10.0.0.2:8081"}
        assert {name: set(view[name]["seen"]) for name in _READERS} == dict.fromkeys(_READERS, listed)

        # From here on the readers learn all by watch events.
        first.endpoints = _slice("web-1", {"10.0.0.3": True}, 8081).endpoints
        first = await shop.update(first)
        second = await shop.create(_slice("web-2", {"10.0.0.4": True}, 8082))
        endpoints.subsets = _endpoints("10.0.0.3", "10.0.0.4", 8082).subsets
        endpoints = await shop.update(endpoints)
        view = await reader.view_of({_version(first), _version(second)}, {_version(endpoints)})
        now = {_ROUTER} if proxied else {"10.0.0.3:8081", "10.0.0.4:8082"}
        assert {address for found in view["store"]["now"].values() for address in found} == now
        assert {address for found in view["endpointslices"]["now"].values() for address in found} == now

        await shop.delete(EndpointSlice, "web-1")
        await shop.delete(Endpoints, "web")
        view = await reader.view_of({_version(second)}, set())
        seen = {address for name in _READERS for address in view[name]["seen"]}
        assert seen == ({_ROUTER} if proxied else listed | now | {"10.0.0.3:8082"})


def _version(resource: Resource) -> str:
    return resource.metadata.resource_version
