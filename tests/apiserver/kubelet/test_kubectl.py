"""kubectl logs, exec, attach, cp and port-forward reach a pod through the server, whichever protocols client and kubelet speak."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.apiserver.kubelet.conftest import Cluster, echo_server
from tests.apiserver.kubelet.scripted import ScriptedKubelet

pytestmark = pytest.mark.server

#: kubectl speaks SPDY when its environment disables WebSockets.
BY_SPDY = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
PROTOCOLS = pytest.mark.parametrize("env", [pytest.param({}, id="kubectl by WebSocket"), pytest.param(BY_SPDY, id="kubectl by SPDY")])


async def test_logs_are_what_the_kubelet_says(cluster: Cluster, kubelet: ScriptedKubelet, node: str) -> None:
    await cluster.pod("web", node)
    result = await cluster.kubectl("logs", "web", "--tail=5", "--timestamps")
    assert (result.code, result.out) == (0, "one\ntwo\n")
    assert kubelet.last.path == f"/containerLogs/{cluster.namespace}/web/main"
    assert kubelet.last.query == {"tailLines": ["5"], "timestamps": ["true"]}


async def test_a_followed_log_comes_line_by_line(cluster: Cluster, kubelet: ScriptedKubelet, node: str) -> None:
    await cluster.pod("web", node)
    process = await cluster.start_kubectl("logs", "web", "--follow")
    assert process.stdout is not None
    assert [await process.stdout.readline() for _ in range(2)] == [b"one\n", b"two\n"]
    kubelet.log_goes_on.set()
    assert await process.stdout.readline() == b"later\n"
    await process.communicate()
    assert process.returncode == 0


@PROTOCOLS
async def test_exec_brings_output_errors_and_exit_code(cluster: Cluster, node: str, env: dict[str, str]) -> None:
    await cluster.pod("web", node)
    result = await cluster.kubectl("exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 3", env=env)
    assert result.code == 3, result
    assert result.out == "out\n"
    assert result.err.startswith("err\n")
    assert "command terminated with exit code 3" in result.err


@PROTOCOLS
async def test_exec_feeds_input_to_its_end(cluster: Cluster, node: str, env: dict[str, str]) -> None:
    await cluster.pod("web", node)
    text = b"line\n" * 50_000
    result = await cluster.kubectl("exec", "-i", "web", "--", "cat", stdin=text, env=env)
    assert (result.code, result.out == text.decode()) == (0, True), result.err


@PROTOCOLS
async def test_attach_shares_the_streams_of_a_container(cluster: Cluster, node: str, env: dict[str, str]) -> None:
    await cluster.pod("web", node, containers=[{"name": "main", "image": "none", "stdin": True}])
    result = await cluster.kubectl("attach", "-i", "web", stdin=b"hello\n", env=env)
    assert (result.code, result.out) == (0, "attached\nHELLO\n"), result.err


@PROTOCOLS
async def test_cp_carries_files_both_ways(cluster: Cluster, node: str, env: dict[str, str], tmp_path: Path) -> None:
    await cluster.pod("web", node)
    content = "".join(f"{number}\n" for number in range(20_000))
    (tmp_path / "here.txt").write_text(content)
    up = await cluster.kubectl("cp", str(tmp_path / "here.txt"), "web:there.txt", env=env)
    assert up.code == 0, up.err
    assert (tmp_path / "container" / "there.txt").read_text() == content
    down = await cluster.kubectl("cp", "web:there.txt", str(tmp_path / "back.txt"), env=env)
    assert down.code == 0, down.err
    assert (tmp_path / "back.txt").read_text() == content


@PROTOCOLS
async def test_port_forward_carries_connections(cluster: Cluster, node: str, env: dict[str, str]) -> None:
    await cluster.pod("web", node)
    async with echo_server() as port:
        process = await cluster.start_kubectl("port-forward", "web", f":{port}", env=env)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(20):
                line = (await process.stdout.readline()).decode()
            found = re.search(r"127\.0\.0\.1:(\d+) -> ", line)
            assert found, line
            sent = b"abc" * 100_000
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", int(found[1]))
                writer.write(sent)
                writer.write_eof()
                async with asyncio.timeout(20):
                    assert await reader.read() == sent.upper()
                writer.close()
        finally:
            process.terminate()
            await process.communicate()


async def test_exec_in_a_pod_without_a_node_is_refused_with_the_reason(cluster: Cluster) -> None:
    await cluster.pod("web", schedulingGates=[{"name": "example.com/wait"}])
    result = await cluster.kubectl("exec", "web", "--", "true")
    assert result.code == 1
    assert "pod web does not have a host assigned" in result.err
