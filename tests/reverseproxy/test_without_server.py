"""A proxy in front of an API server needs only ``endpoints``, ``reverseproxy``, ``serving`` and ``http1``, and serves kubectl."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from tests.apiserver.kubelet.conftest import Cluster, echo_server
from tests.apiserver.kubelet.scripted import ScriptedKubelet
from tests.kubectl.runner import Result, kubectl_binary

pytestmark = pytest.mark.server

PROGRAM = Path(__file__).with_name("small_proxy.py")
BY_SPDY = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
PROTOCOLS = pytest.mark.parametrize("env", [pytest.param({}, id="kubectl by WebSocket"), pytest.param(BY_SPDY, id="kubectl by SPDY")])
PIPE = asyncio.subprocess.PIPE


@dataclass
class Proxy:
    """The proxy in its process, and kubectl on it."""

    url: str
    cluster: Cluster
    process: asyncio.subprocess.Process

    async def start_kubectl(self, *args: str, env: dict[str, str] | None = None) -> asyncio.subprocess.Process:
        command = [kubectl_binary(), "--server", self.url, "--namespace", self.cluster.namespace, *args]
        base = {"HOME": str(self.cluster.home), "KUBECONFIG": os.devnull, "PATH": os.environ.get("PATH", "")}
        return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**base, **(env or {})})

    async def kubectl(self, *args: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Result:
        process = await self.start_kubectl(*args, env=env)
        async with asyncio.timeout(30):
            out, err = await process.communicate(stdin)
        return Result(process.returncode or 0, out.decode(), err.decode())

    async def counts(self) -> dict[str, int]:
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/counts") as response:
            counts: dict[str, int] = await response.json()
            return counts

    async def stop(self) -> set[str]:
        """End the proxy; return the modules of kubeloop that it has loaded."""
        async with asyncio.timeout(30):
            out, _ = await self.process.communicate(b"")
        assert self.process.returncode == 0
        return set(out.decode().split())


@pytest.fixture
async def proxy(cluster: Cluster) -> AsyncIterator[Proxy]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), str(cluster.server.kubeconfig), stdin=PIPE, stdout=PIPE, cwd=Path(__file__).parents[2]
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            url = (await process.stdout.readline()).decode().strip()
        yield Proxy(url, cluster, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.fixture
async def pod(cluster: Cluster, kubelet: ScriptedKubelet) -> str:
    return await cluster.pod("web", await cluster.node(kubelet))


def forbidden_modules(loaded: set[str]) -> list[str]:
    return sorted(name for name in loaded if name.startswith(("kubeloop.apiserver", "kubeloop.controlplane", "kubeloop.testing")))


async def test_kubectl_get_shows_the_servers_table(proxy: Proxy, pod: str) -> None:
    result = await proxy.kubectl("get", "pods")
    header, row = result.out.splitlines()
    assert header.split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    direct = await proxy.cluster.kubectl("get", "pods", "--no-headers")
    assert row.split()[:4] == direct.out.split()[:4]
    assert row.split()[0] == "web"
    assert forbidden_modules(await proxy.stop()) == []


async def test_a_table_of_the_proxy_has_the_columns_of_kubernetes(proxy: Proxy) -> None:
    result = await proxy.kubectl("get", "nodes")
    header, row = result.out.splitlines()
    assert header.split() == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert row.split() == ["of-the-proxy", "Ready", "edge", "<unknown>", "v1.36.0"]
    assert (await proxy.kubectl("get", "nodes", "-o", "name")).out == "node/of-the-proxy\n"
    assert forbidden_modules(await proxy.stop()) == []


async def test_a_refused_request_gets_a_status_in_the_words_of_kubernetes(proxy: Proxy, pod: str) -> None:
    result = await proxy.kubectl("delete", "pod", "web")
    namespace = proxy.cluster.namespace
    assert result.code == 1
    assert result.err == (
        'Error from server (Forbidden): pods "web" is forbidden: User "system:anonymous" cannot delete resource "pods" '
        f'in API group "" in the namespace "{namespace}": this proxy deletes no pods\n'
    )
    assert (await proxy.kubectl("get", "pod", "web", "-o", "name")).out == "pod/web\n"
    async with aiohttp.ClientSession() as session, session.delete(proxy.url + pod, headers={"Accept": "application/yaml"}) as response:
        assert (response.status, response.content_type) == (403, "application/yaml")
        assert "reason: Forbidden" in await response.text()
    assert forbidden_modules(await proxy.stop()) == []


async def test_writes_and_watches_pass(proxy: Proxy) -> None:
    process = await proxy.start_kubectl("get", "configmaps", "--watch-only", "--output-watch-events", "-o", "name")
    assert process.stdout is not None
    async with asyncio.timeout(30):
        while (await proxy.counts()).get("events", 0) == 0:
            # The watch begins some time after kubectl does: change objects until it shows one.
            await proxy.kubectl("delete", "configmap", "mine", "--ignore-not-found")
            created = await proxy.kubectl("create", "configmap", "mine", "--from-literal=a=b")
            assert created.out == "configmap/mine created\n", created.err
        line = await process.stdout.readline()
    assert line.split()[-1] in (b"configmap/mine", b"configmap/kube-root-ca.crt")
    process.kill()
    await process.communicate()
    assert forbidden_modules(await proxy.stop()) == []


@PROTOCOLS
async def test_exec_passes(proxy: Proxy, pod: str, env: dict[str, str]) -> None:
    result = await proxy.kubectl("exec", "-i", "web", "--", "sh", "-c", "cat; exit 3", stdin=b"hello\n", env=env)
    assert (result.code, result.out) == (3, "hello\n"), result.err
    assert (await proxy.counts())["upgrades"] == 1
    assert forbidden_modules(await proxy.stop()) == []


@PROTOCOLS
async def test_port_forward_passes(proxy: Proxy, pod: str, env: dict[str, str]) -> None:
    async with echo_server() as port:
        process = await proxy.start_kubectl("port-forward", "web", f":{port}", env=env)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(30):
                line = (await process.stdout.readline()).decode()
                local = int(line.split(" -> ")[0].rpartition(":")[2])
                reader, writer = await asyncio.open_connection("127.0.0.1", local)
                writer.write(b"hello")
                writer.write_eof()
                assert await reader.read() == b"HELLO"
                writer.close()
                await writer.wait_closed()
        finally:
            process.kill()
            await process.communicate()
    assert forbidden_modules(await proxy.stop()) == []


async def test_an_unreachable_server_is_a_status(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    kubeconfig.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "users": [{"name": "u"}], "current-context": "c"}))
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), str(kubeconfig), stdin=PIPE, stdout=PIPE, cwd=Path(__file__).parents[2]
    )
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().strip()
    async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/pods") as response:
        status = await response.json()
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 503, "ServiceUnavailable")
    assert status["message"] == "error trying to reach service: dial tcp 127.0.0.1:1: connect: connection refused"
    out, _ = await process.communicate(b"")
    assert forbidden_modules(set(out.decode().split())) == []
