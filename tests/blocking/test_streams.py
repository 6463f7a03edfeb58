"""Streams for scripts, from threads beside the loop that runs the scripted kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

import pytest

from kubeloop.blocking import Client, CommandFailed, DeadlineError, Transport, TransportError
from tests.apiserver.kubelet.conftest import Cluster, cluster, echo_server, kubectl_home, kubelet
from tests.apiserver.kubelet.scripted import ScriptedKubelet

__all__ = ["cluster", "kubectl_home", "kubelet"]

pytestmark = pytest.mark.server


@pytest.fixture
async def pod(cluster: Cluster, kubelet: ScriptedKubelet) -> str:
    await cluster.pod("web", await cluster.node(kubelet))
    return "web"


def client_of(cluster: Cluster) -> Client:
    return Client(Transport(cluster.server.config), namespace=cluster.namespace)


async def test_logs_whole_line_by_line_and_merged(cluster: Cluster, pod: str) -> None:
    def script() -> None:
        with client_of(cluster) as client:
            assert client.pods.logs(pod) == "one\ntwo\n"
            with client.pods.logs_stream(pod) as log:
                assert log.container == "main"
                assert list(log) == ["one", "two"]
            with client.pods.logs_stream(pod) as log:
                assert (next(log), next(log)) == ("one", "two")
            with client.pods.merged_logs(pod) as lines:
                assert [str(line) for line in lines] == ["[pod/web/main] one", "[pod/web/main] two"]

    await asyncio.to_thread(script)


async def test_commands_to_their_end_and_as_sessions(cluster: Cluster, pod: str) -> None:
    def script() -> None:
        with client_of(cluster) as client:
            result = client.pods.exec(pod, ["sh", "-c", "echo out; exit 3"])
            assert (result.exit_code, result.text) == (3, "out\n")
            with pytest.raises(CommandFailed):
                result.check()
            with client.pods.exec_stream(pod, ["sh"], stdin=True) as session:
                session.write(b"echo one\n")
                assert next(session).data == b"one\n"
                session.write(b"exit 7\n")
                assert session.wait() == 7
                assert session.exit_code == 7

    await asyncio.to_thread(script)


async def test_a_session_that_is_left_early_frees_its_connection(cluster: Cluster, pod: str) -> None:
    def script() -> None:
        with client_of(cluster) as client:
            with client.pods.exec_stream(pod, ["cat"], stdin=True) as session:
                session.write(b"x")
            with pytest.raises(TransportError):
                session.write(b"y")
            assert client.pods.exec(pod, ["true"]).ok

    await asyncio.to_thread(script)


async def test_forwarded_ports_as_sockets_and_as_connections(cluster: Cluster, pod: str) -> None:
    async with echo_server() as port:

        def script() -> None:
            with client_of(cluster) as client, client.pods.port_forward(pod, f":{port}") as forward:
                with socket.create_connection(("127.0.0.1", forward.local(port))) as one:
                    one.sendall(b"abc")
                    assert one.recv(3) == b"ABC"
                reader, writer = forward.connect(port)
                writer.write(b"abc")
                writer.drain()
                assert reader.readexactly(3) == b"ABC"
                writer.close()
                forward.stop()
                forward.wait()

        await asyncio.to_thread(script)


def entered(block: contextlib.AbstractContextManager[object]) -> None:
    with block:
        raise AssertionError("zero seconds have passed: nothing is open")


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda pods: pods.logs("web", timeout=0), id="logs"),
        pytest.param(lambda pods: entered(pods.logs_stream("web", timeout=0)), id="logs_stream"),
        pytest.param(lambda pods: entered(pods.merged_logs("web", timeout=0)), id="merged_logs"),
        pytest.param(lambda pods: pods.exec("web", ["ls"], timeout=0), id="exec"),
        pytest.param(lambda pods: entered(pods.exec_stream("web", ["ls"], timeout=0)), id="exec_stream"),
        pytest.param(lambda pods: entered(pods.attach("web", timeout=0)), id="attach"),
        pytest.param(lambda pods: entered(pods.port_forward("web", ":80", timeout=0)), id="port_forward"),
        pytest.param(lambda pods: pods.copy_to("web", __file__, "/tmp/copy", timeout=0), id="copy_to"),
        pytest.param(lambda pods: pods.copy_from("web", "/tmp/copy", "copy", timeout=0), id="copy_from"),
        pytest.param(lambda pods: pods.proxy("web", timeout=0), id="proxy"),
        pytest.param(lambda pods: entered(pods.proxy_stream("web", timeout=0)), id="proxy_stream"),
    ],
)
def test_every_method_for_pods_takes_a_time_limit(blocking: Client, call: Callable[[object], object]) -> None:
    with pytest.raises(DeadlineError, match="within 0 s"):
        call(blocking.pods)
