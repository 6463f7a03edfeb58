"""kwok plays the kubelet: its nodes get pods, and kubectl reaches those by WebSocket and by SPDY, through streams that Go's code resets."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubeloop.api.core.v1 import Container, Namespace, Node, Pod, PodSpec, ServiceAccount
from kubeloop.client import Client
from kubeloop.controller import Manager
from kubeloop.controlplane import controllers
from kubeloop.meta import InternalError, ObjectMeta
from kubeloop.tasks import end_tasks
from kubeloop.transport import Transport
from tests.foreign.building import program
from tests.kubectl.runner import Result, kubectl_binary
from tests.servers import ServerUnderTest

# The fixture builds kwok.
pytestmark = [pytest.mark.server, pytest.mark.upstream, pytest.mark.timeout(1800)]

_NODE = "kwok-node"
_NAMESPACE = "on-kwok"
_BY_SPDY = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
PROTOCOLS = pytest.mark.parametrize("env", [pytest.param({}, id="kubectl by WebSocket"), pytest.param(_BY_SPDY, id="kubectl by SPDY")])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _configuration(log: Path, port: int) -> str:
    """What kwok's kubelet serves for all pods; YAML takes JSON."""
    kinds = {
        "ClusterExec": {"execs": [{"local": {}}]},
        "ClusterLogs": {"logs": [{"logsFile": str(log)}]},
        "ClusterAttach": {"attaches": [{"logsFile": str(log)}]},
        "ClusterPortForward": {"forwards": [{"target": {"address": "127.0.0.1", "port": port}}]},
    }
    objects = [
        {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": kind, "metadata": {"name": "all"}, "spec": spec} for kind, spec in kinds.items()
    ]
    return "\n---\n".join(json.dumps(one) for one in objects)


def _line(text: str) -> str:
    """As container runtimes write it."""
    return f"2026-01-01T00:00:00.000000000Z stdout F {text}\n"


@asynccontextmanager
async def _kwok(server: ServerUnderTest, folder: Path, port: int) -> AsyncIterator[None]:
    kubelet = _free_port()
    log = folder / "container.log"
    log.write_text(_line("one") + _line("two"))
    (folder / "kwok.yaml").write_text(_configuration(log, port))
    with (folder / "kwok.log").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(str(program("kwok")), f"--kubeconfig={server.kubeconfig}", f"--config={folder / 'kwok.yaml'}"),
            *("--manage-all-nodes", "--node-ip=127.0.0.1", f"--node-port={kubelet}", f"--server-address=127.0.0.1:{kubelet}"),
            env={"HOME": str(folder), "PATH": os.environ.get("PATH", "")},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    line = await reader.readline()
    writer.write(b"forwarded " + line)
    await writer.drain()
    writer.close()


@pytest.fixture
async def client(server: ServerUnderTest, tmp_path: Path) -> AsyncIterator[Client]:
    """Our controllers, without simulated nodes; kwok; a node of kwok's, and a pod that our scheduler gave it."""
    backend = await asyncio.start_server(_answer, "127.0.0.1", 0)
    port = int(backend.sockets[0].getsockname()[1])
    async with (
        backend,
        Client(Transport(server.config)) as own,
        Manager(own, controllers(authority=server.authority, nodes=()), grace=60),
        _kwok(server, tmp_path, port),
        Client(Transport(server.config), namespace=_NAMESPACE) as found,
    ):
        await found.create(Namespace(metadata=ObjectMeta(name=_NAMESPACE)))
        await found.wait_for(ServiceAccount, "default", bool, timeout=60)
        annotations = {"kwok.x-k8s.io/node": "fake"}
        await found.create(Node(metadata=ObjectMeta(name=_NODE, annotations=annotations)))
        try:
            await found.wait_for(Node, _NODE, lambda node: not node.spec.taints, timeout=60)
            await found.create(Pod(metadata=ObjectMeta(name="web"), spec=PodSpec(containers=[Container(name="main", image="none")])))
            await found.wait_for(Pod, "web", lambda pod: pod.status.phase == "Running", timeout=60)
            yield found
        finally:
            await found.delete(Pod, "web", grace_period_seconds=0)
            await found.delete(Node, _NODE)
            await found.delete(Namespace, _NAMESPACE)
            await found.wait_gone(Namespace, _NAMESPACE, timeout=60)


async def _kubectl(server: ServerUnderTest, home: Path, env: dict[str, str], *arguments: str, stdin: bytes = b"") -> Result:
    base = {"HOME": str(home), "KUBECONFIG": str(server.kubeconfig), "PATH": os.environ.get("PATH", "")}
    pipe = asyncio.subprocess.PIPE
    command = [kubectl_binary(), "--namespace", _NAMESPACE, *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, env={**base, **env})
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin)
    except TimeoutError:
        process.kill()
        await process.communicate()
        raise
    return Result(process.returncode or 0, out.decode(), err.decode())


@PROTOCOLS
async def test_kubectl_reaches_a_pod_of_kwok(server: ServerUnderTest, client: Client, tmp_path: Path, env: dict[str, str]) -> None:
    done = await _kubectl(server, tmp_path, env, "exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.code, done.out) == (1, "out\n"), done
    assert done.err.startswith("err\n")
    assert "exit status 3" in done.err  # kwok tells exit codes in words only
    done = await _kubectl(server, tmp_path, env, "exec", "web", "--", "echo", "fine")
    assert (done.code, done.out, done.err) == (0, "fine\n", ""), done
    # Not cat: kwok does not tell its commands that their input ended.
    done = await _kubectl(server, tmp_path, env, "exec", "-i", "web", "--", "head", "-c", "250000", stdin=b"line\n" * 50_000)
    assert (done.code, len(done.out)) == (0, 250_000), done.err
    done = await _kubectl(server, tmp_path, env, "logs", "web")
    assert (done.code, done.out) == (0, "one\ntwo\n"), done
    await _attach(server, tmp_path, env)
    await _forward(server, tmp_path, env)


async def _attach(server: ServerUnderTest, home: Path, env: dict[str, str]) -> None:
    """kwok's attach shows additions to the log, and does not end by itself."""

    async def add() -> None:
        while True:
            with (home / "container.log").open("a") as log:
                log.write(_line("added"))
            await asyncio.sleep(0.1)

    adding = asyncio.ensure_future(add())
    try:
        await _until_said(server, home, env, ["attach", "web"], b"added")
    finally:
        await end_tasks(adding)


async def _forward(server: ServerUnderTest, home: Path, env: dict[str, str]) -> None:
    port = _free_port()

    async def ask() -> None:
        for text in (b"first\n", b"second\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text)
            assert await reader.readline() == b"forwarded " + text
            writer.close()  # kwok ends its side when the client has ended his
            await writer.wait_closed()

    await _until_said(server, home, env, ["port-forward", "pod/web", f"{port}:80", "--address=127.0.0.1"], b"Forwarding from", ask)


async def _until_said(server: ServerUnderTest, home: Path, env: dict[str, str], words: list[str], text: bytes, then: object = None) -> None:
    """Run kubectl until it prints a line with ``said``, call ``then``, and end it."""
    base = {"HOME": str(home), "KUBECONFIG": str(server.kubeconfig), "PATH": os.environ.get("PATH", "")}
    pipe = asyncio.subprocess.PIPE
    command = [kubectl_binary(), "--namespace", _NAMESPACE, *words]
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, env={**base, **env})
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            while text not in (line := await process.stdout.readline()):
                assert line, (await process.communicate())[1]
            if callable(then):
                await then()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def test_the_client_runs_commands_in_a_pod_of_kwok(client: Client) -> None:
    result = await client.pods.exec("web", ["sh", "-c", "echo out; echo err >&2"])
    assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 0)
    with pytest.raises(InternalError, match="exit status 4"):  # kwok tells exit codes in words only
        await client.pods.exec("web", ["sh", "-c", "exit 4"])
    assert await client.pods.logs("web") == "one\ntwo\n"
