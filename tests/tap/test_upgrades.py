"""kubectl exec and port-forward through a tap, by WebSocket and by SPDY."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubeloop.tap.client_config import TapMode, load_cluster, through_tap
from kubeloop.tap.traffic import RequestData, ResponseData, ResponseStarted
from tests.apiserver.kubelet.conftest import Cluster, cluster, echo_server, kubectl_home, kubelet
from tests.apiserver.kubelet.scripted import ScriptedKubelet
from tests.kubectl.runner import kubectl_binary
from tests.tap.open_tap import OpenTap, open_tap

__all__ = ["cluster", "kubectl_home", "kubelet"]

pytestmark = pytest.mark.server

BY_SPDY = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
PROTOCOLS = pytest.mark.parametrize("env", [pytest.param({}, id="kubectl by WebSocket"), pytest.param(BY_SPDY, id="kubectl by SPDY")])
PIPE = asyncio.subprocess.PIPE


@dataclass
class TappedCluster:
    """A tap, and kubectl on it."""

    tap: OpenTap
    cluster: Cluster
    kubeconfig: Path

    async def kubectl(self, *args: str, env: dict[str, str]) -> asyncio.subprocess.Process:
        base = {"HOME": str(self.cluster.home), "KUBECONFIG": str(self.kubeconfig), "PATH": os.environ.get("PATH", "")}
        command = [kubectl_binary(), "--namespace", self.cluster.namespace, *args]
        return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={**base, **env})

    def upgrades(self) -> list[str]:
        answers = [fact for fact in self.tap.facts if isinstance(fact, ResponseStarted) and fact.status == 101]
        return [dict(answer.headers)["Upgrade"].lower() for answer in answers]


@pytest.fixture
async def tapped(cluster: Cluster, tmp_path: Path) -> AsyncIterator[TappedCluster]:
    config, kubeconfig = load_cluster(cluster.server.kubeconfig, None)
    async with open_tap(config) as tap:
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps(through_tap(kubeconfig, TapMode.SERVER, tap.port, tap.certificates.authority)))
        yield TappedCluster(tap, cluster, file)


@pytest.fixture
async def pod(cluster: Cluster, kubelet: ScriptedKubelet) -> str:
    return await cluster.pod("web", await cluster.node(kubelet))


@PROTOCOLS
async def test_exec_passes(tapped: TappedCluster, pod: str, env: dict[str, str]) -> None:
    process = await tapped.kubectl("exec", "-i", "web", "--", "sh", "-c", "cat; exit 3", env=env)
    async with asyncio.timeout(30):
        out, err = await process.communicate(b"hello\n")
    assert (process.returncode, out) == (3, b"hello\n"), err
    assert tapped.upgrades() == ["spdy/3.1" if env else "websocket"]
    # A WebSocket client masks what it sends (RFC 6455, section 5.3).
    kinds = (RequestData, ResponseData) if env else (ResponseData,)
    for kind in kinds:
        assert b"hello\n" in b"".join(fact.data for fact in tapped.tap.facts if isinstance(fact, kind))


@PROTOCOLS
async def test_port_forward_passes(tapped: TappedCluster, pod: str, env: dict[str, str]) -> None:
    async with echo_server() as port:
        process = await tapped.kubectl("port-forward", "web", f":{port}", env=env)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(30):
                line = (await process.stdout.readline()).decode()
                reader, writer = await asyncio.open_connection("127.0.0.1", int(line.split(" -> ")[0].rpartition(":")[2]))
                writer.write(b"hello")
                writer.write_eof()
                assert await reader.read() == b"HELLO"
                writer.close()
                await writer.wait_closed()
        finally:
            process.kill()
            await process.communicate()
    assert tapped.upgrades() == ["spdy/3.1" if env else "websocket"]
