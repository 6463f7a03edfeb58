"""exec, port-forward, cp-like input and followed logs through a proxy with rules, to pods whose kubelet is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubeloop.proxy.server import ProxyOptions, ProxyServer
from tests.apiserver.kubelet.conftest import Cluster, cluster, echo_server, kubectl_home, kubelet
from tests.apiserver.kubelet.scripted import ScriptedKubelet
from tests.kubectl.runner import Result
from tests.proxy.rules.rule_texts import rule, text_of

__all__ = ["cluster", "kubectl_home", "kubelet"]
pytestmark = pytest.mark.server

BY_SPDY = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
PROTOCOLS = pytest.mark.parametrize("env", [pytest.param({}, id="kubectl by WebSocket"), pytest.param(BY_SPDY, id="kubectl by SPDY")])
RULES = text_of(
    rule(match=[{"labelSelector": "tier=back"}], name="hide-back"),
    rule({"set": {"spec.nodeName": "hidden"}}, name="move", match=[{"resources": ["pods"]}]),
)


@dataclass
class Behind:
    """kubectl behind a proxy of the cluster."""

    cluster: Cluster
    proxy: ProxyServer
    kubeconfig: Path

    async def kubectl(self, *args: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Result:
        return await self.cluster.kubectl(*args, stdin=stdin, env={"KUBECONFIG": str(self.kubeconfig), **(env or {})})

    async def start(self, *args: str, env: dict[str, str] | None = None) -> asyncio.subprocess.Process:
        return await self.cluster.start_kubectl(*args, env={"KUBECONFIG": str(self.kubeconfig), **(env or {})})


@pytest.fixture
async def behind(cluster: Cluster, kubelet: ScriptedKubelet, tmp_path: Path) -> AsyncIterator[Behind]:
    """The pod ``web`` on a node, behind a proxy that changes it."""
    await cluster.pod("web", await cluster.node(kubelet))
    rules, kubeconfig = tmp_path / "rules.yaml", tmp_path / "kubeconfig"
    rules.write_text(RULES)
    async with ProxyServer(cluster.server.config, ProxyOptions(rules=rules)) as proxy:
        kubeconfig.write_bytes(proxy.kubeconfig())
        yield Behind(cluster, proxy, kubeconfig)


@PROTOCOLS
async def test_exec_brings_output_errors_and_exit_code(behind: Behind, env: dict[str, str]) -> None:
    result = await behind.kubectl("exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 3", env=env)
    assert (result.code, result.out) == (3, "out\n")
    assert result.err.startswith("err\n")


@PROTOCOLS
async def test_exec_feeds_input_to_its_end(behind: Behind, env: dict[str, str]) -> None:
    text = b"line\n" * 50_000
    result = await behind.kubectl("exec", "-i", "web", "--", "cat", stdin=text, env=env)
    assert (result.code, result.out == text.decode()) == (0, True), result.err


@PROTOCOLS
async def test_port_forward_reaches_a_port_of_the_pod(behind: Behind, env: dict[str, str]) -> None:
    async with echo_server() as port:
        process = await behind.start("port-forward", "pod/web", f":{port}", env=env)
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(line.split("127.0.0.1:")[1].split()[0]))
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"HELLO"
        writer.close()
        await writer.wait_closed()
        process.terminate()
        await process.communicate()


async def test_a_followed_log_comes_line_by_line_and_ends_with_its_client(behind: Behind, kubelet: ScriptedKubelet) -> None:
    process = await behind.start("logs", "web", "--follow")
    assert process.stdout is not None
    assert [await process.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
    kubelet.log_goes_on.set()
    assert await process.stdout.readline() == b"later\n"
    await process.communicate()
    assert process.returncode == 0


async def test_streams_of_a_hidden_pod_do_not_exist(behind: Behind) -> None:
    status, _ = await behind.cluster.request(
        "PATCH",
        f"/api/v1/namespaces/{behind.cluster.namespace}/pods/web",
        {"metadata": {"labels": {"tier": "back"}}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    assert status == 200
    for command in (("logs", "web"), ("logs", "-f", "web"), ("exec", "web", "--", "true"), ("port-forward", "pod/web", ":1")):
        result = await behind.kubectl(*command)
        assert (result.code, 'pods "web" not found' in result.err) == (1, True), result


async def test_a_proxy_that_stops_ends_its_streams(behind: Behind) -> None:
    process = await behind.start("exec", "-i", "web", "--", "cat")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"hello\n")
    assert await process.stdout.readline() == b"hello\n"
    await behind.proxy.stop()
    async with asyncio.timeout(20):
        await process.communicate()
