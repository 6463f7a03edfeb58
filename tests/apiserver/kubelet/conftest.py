"""A node whose kubelet is scripted, pods on it, and kubectl and raw requests to reach them: on the embedded and on a real server."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kubeloop.config import ClusterConfig
from tests.apiserver.kubelet.scripted import WEBSOCKETS, ScriptedKubelet
from tests.kubectl.runner import Result, kubectl_binary
from tests.servers import ServerUnderTest

_NUMBERS = itertools.count(1)
MERGE = {"Content-Type": "application/merge-patch+json"}


def own_address() -> str:
    """An address of this machine that is not loopback, which proxies refuse; no packet is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.fail("these tests need an address of this machine other than 127.0.0.1")
        return str(probe.getsockname()[0])


@dataclass
class Cluster:
    """An administrator's requests, and what the test made."""

    server: ServerUnderTest
    session: aiohttp.ClientSession
    namespace: str
    home: Path
    _made: list[str] = field(default_factory=list)

    async def request(self, method: str, path: str, body: Any = None, **rest: Any) -> tuple[int, Any]:
        async with self.session.request(method, path, json=body, **rest) as answer:
            return answer.status, await answer.json(content_type=None) if answer.status != 204 else None

    async def node(self, kubelet: ScriptedKubelet | int, *, features: list[str] | None = None, address: str = "127.0.0.1") -> str:
        """A node whose kubelet listens there."""
        name = f"kubelet-{os.getpid()}-{next(_NUMBERS)}"
        await self._make("/api/v1/nodes", {"metadata": {"name": name}})
        self._made.append(f"/api/v1/nodes/{name}")
        port = kubelet if isinstance(kubelet, int) else kubelet.port
        status = {
            "addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "declaredFeatures": features,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        await self._patch(f"/api/v1/nodes/{name}/status", {"status": status})
        return name

    async def pod(self, name: str, node: str = "", **spec: Any) -> str:
        """A pod that is running there."""
        wanted = {"containers": [{"name": "main", "image": "none"}], "terminationGracePeriodSeconds": 0, **spec}
        if node:
            wanted["nodeName"] = node
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        await self._make(path, {"metadata": {"name": name}, "spec": wanted})
        containers = [
            {"name": one["name"], "ready": True, "restartCount": 0, "image": "none", "imageID": ""} for one in wanted["containers"]
        ]
        if node:
            await self._patch(f"{path}/{name}/status", {"status": {"phase": "Running", "containerStatuses": containers}})
        return f"{path}/{name}"

    async def address(self, pod: str, address: str) -> None:
        await self._patch(f"{pod}/status", {"status": {"podIP": address, "podIPs": [{"ip": address}]}})

    async def make(self, resource: str, body: Any) -> None:
        await self._make(f"/api/v1/namespaces/{self.namespace}/{resource}", body)

    async def kubectl(self, *args: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Result:
        """kubectl beside the test, which may serve it meanwhile."""
        process = await self.start_kubectl(*args, env=env)
        try:
            async with asyncio.timeout(30):
                out, err = await process.communicate(stdin)
        except TimeoutError:
            process.kill()
            await process.communicate()
            raise
        return Result(process.returncode or 0, out.decode(), err.decode())

    async def start_kubectl(self, *args: str, env: dict[str, str] | None = None) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        base = {"HOME": str(self.home), "KUBECONFIG": str(self.server.kubeconfig), "PATH": os.environ.get("PATH", "")}
        command = [kubectl_binary(), "--namespace", self.namespace, *args]
        return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, env={**base, **(env or {})})

    async def clean(self) -> None:
        for path in reversed(self._made):
            await self.request("DELETE", path)

    async def _make(self, path: str, body: Any) -> None:
        status, answer = await self.request("POST", path, body)
        assert status == 201, answer

    async def _patch(self, path: str, body: Any) -> None:
        status, answer = await self.request("PATCH", path, body, headers=MERGE)
        assert status == 200, answer


async def tls_of(config: ClusterConfig) -> ssl.SSLContext:
    from kubeloop.config import RequestAuthenticator
    from kubeloop.timing import SystemClock

    return config.ssl_context(await RequestAuthenticator(config, SystemClock()).client_certificate())


@pytest.fixture(scope="session")
def kubectl_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kubelet-home")


@pytest.fixture
async def cluster(server: ServerUnderTest, namespace: str, kubectl_home: Path) -> AsyncIterator[Cluster]:
    # No connection is used twice: after a refused upgrade a kube-apiserver may close it without a word, and aiohttp sends no POST again.
    connector = aiohttp.TCPConnector(ssl=await tls_of(server.config), limit=0, keepalive_timeout=0)
    async with aiohttp.ClientSession(server.config.server, connector=connector) as session:
        made = Cluster(server, session, namespace, kubectl_home)
        yield made
        await made.clean()


@pytest.fixture
async def kubelet(tmp_path: Path) -> AsyncIterator[ScriptedKubelet]:
    folder = tmp_path / "container"
    folder.mkdir()
    async with ScriptedKubelet(cwd=folder) as made:
        yield made


@pytest.fixture(params=[pytest.param(None, id="kubelet that speaks SPDY"), pytest.param([WEBSOCKETS], id="kubelet that speaks WebSocket")])
async def node(request: pytest.FixtureRequest, cluster: Cluster, kubelet: ScriptedKubelet) -> str:
    """A node with the scripted kubelet, in both of a kubelet's generations."""
    return await cluster.node(kubelet, features=request.param)


@asynccontextmanager
async def echo_server() -> AsyncIterator[int]:
    """Sends back what it gets, in upper case, until the other side ends; its port."""

    serving: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        while data := await reader.read(1 << 16):
            writer.write(data.upper())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        async with asyncio.timeout(10):
            await asyncio.gather(*serving, return_exceptions=True)
        await server.wait_closed()
