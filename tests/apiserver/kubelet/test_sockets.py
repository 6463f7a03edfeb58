"""WebSockets of exec for kubelets that speak only SPDY, message by message, on both servers."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kubeloop.apiserver.handlers.kubelet.credentials import KubeletCredentials
from kubeloop.serving.answer import Answer
from tests.apiserver.kubelet.conftest import Cluster
from tests.apiserver.kubelet.scripted import V4, V5, ScriptedKubelet, Terminal
from tests.apiserver.kubelet.test_credentials import cluster_with

pytestmark = pytest.mark.server


@pytest.fixture
async def pod(cluster: Cluster, kubelet: ScriptedKubelet) -> str:
    return await cluster.pod("web", await cluster.node(kubelet))


async def received(socket: aiohttp.ClientWebSocketResponse) -> list[bytes]:
    """All messages until the server closes."""
    found: list[bytes] = []
    async with asyncio.timeout(10):
        while (message := await socket.receive()).type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
            found.append(message.data)
    return found


def final_status(messages: list[bytes]) -> Any:
    """What the error channel says."""
    return json.loads(b"".join(one[1:] for one in messages if one[:1] == b"\x03"))


async def test_a_command_says_that_it_is_connected_then_its_output_then_how_it_ended(cluster: Cluster, pod: str) -> None:
    async with cluster.session.ws_connect(f"{pod}/exec?command=echo&command=hi&stdout=1&stderr=1", protocols=[V5]) as socket:
        assert socket.protocol == V5
        assert await received(socket) == [b"\x01", b"\x01hi\n", b'\x03{"metadata":{},"status":"Success"}']


@pytest.mark.parametrize(
    ("query", "first"),
    [
        pytest.param("stdout=1&stderr=1", b"\x01", id="of the output"),
        pytest.param("stderr=1", b"\x02", id="of the errors"),
        pytest.param("stdin=1", b"\x03", id="of the outcome, where there is no output"),
    ],
)
async def test_the_first_message_is_an_empty_one(cluster: Cluster, pod: str, query: str, first: bytes) -> None:
    async with cluster.session.ws_connect(f"{pod}/exec?command=true&{query}", protocols=[V5]) as socket:
        assert (await received(socket))[0] == first


async def test_an_exit_code_is_reported_as_a_cause(cluster: Cluster, pod: str) -> None:
    async with cluster.session.ws_connect(f"{pod}/exec?command=sh&command=-c&command=exit+7&stdout=1", protocols=[V5]) as socket:
        assert final_status(await received(socket)) == {
            "metadata": {},
            "status": "Failure",
            "message": "command terminated with non-zero exit code: command terminated with exit code 7",
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": "7"}]},
        }


async def test_closing_the_input_ends_it_for_the_command(cluster: Cluster, pod: str) -> None:
    async with cluster.session.ws_connect(f"{pod}/exec?command=cat&stdin=1&stdout=1", protocols=[V5]) as socket:
        await socket.send_bytes(b"\x00one ")
        await socket.send_bytes(b"\x00two")
        await socket.send_bytes(b"\xff\x00")
        messages = await received(socket)
    assert b"".join(one[1:] for one in messages if one[:1] == b"\x01") == b"one two"
    assert final_status(messages)["status"] == "Success"


async def test_a_terminal_has_one_output_and_its_sizes_arrive(cluster: Cluster, kubelet: ScriptedKubelet, pod: str) -> None:
    async def command(words: list[str], terminal: Terminal) -> int:
        await terminal.write("stdout", await terminal.sizes.get())
        return 0

    kubelet.command = command
    async with cluster.session.ws_connect(f"{pod}/exec?command=x&stdin=1&stdout=1&stderr=1&tty=1", protocols=[V5]) as socket:
        await socket.send_bytes(b'\x04{"Width":80,"Height":24}')
        messages = await received(socket)
    assert json.loads(b"".join(one[1:] for one in messages if one[:1] == b"\x01")) == {"Width": 80, "Height": 24}
    assert {one["streamtype"] for one in kubelet.streams} == {"error", "stdin", "stdout", "resize"}


async def test_a_client_that_goes_ends_the_command(cluster: Cluster, kubelet: ScriptedKubelet, pod: str) -> None:
    ended = asyncio.Event()

    async def command(words: list[str], terminal: Terminal) -> int:
        try:
            await terminal.write("stdout", b"begun")
            while await terminal.input():
                pass
        finally:
            ended.set()
        return 0

    kubelet.command = command
    async with cluster.session.ws_connect(f"{pod}/exec?command=x&stdin=1&stdout=1", protocols=[V5]) as socket:
        assert [await socket.receive_bytes() for _ in range(2)] == [b"\x01", b"\x01begun"]
    async with asyncio.timeout(10):
        await ended.wait()


async def test_a_kubelets_refusal_is_reported_on_the_error_channel(cluster: Cluster, kubelet: ScriptedKubelet, pod: str) -> None:
    kubelet.refusal = Answer(418, body=b"why\n")
    async with cluster.session.ws_connect(f"{pod}/exec?command=x&stdout=1", protocols=[V5]) as socket:
        messages = await received(socket)
    cause = "unable to upgrade connection: why"
    assert final_status(messages) == {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {cause}",
        "reason": "InternalError",
        "details": {"causes": [{"message": cause}]},
        "code": 500,
    }
    assert kubelet.last.method == "POST"
    assert kubelet.last.protocols == [V5, V4, "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"]


async def test_a_kubelet_that_is_not_there_is_reported_on_the_error_channel(cluster: Cluster) -> None:
    pod = await cluster.pod("web", await cluster.node(1))
    async with cluster.session.ws_connect(f"{pod}/exec?command=x&stdout=1", protocols=[V5]) as socket:
        message = final_status(await received(socket))["message"]
    url = f"https://127.0.0.1:1/exec/{cluster.namespace}/web/main?command=x&output=1"
    refused = "dial tcp 127.0.0.1:1: connect: connection refused"
    assert message == f'Internal error occurred: error sending request: Post "{url}": {refused}'


async def test_an_error_of_an_old_protocol_is_passed_on_as_text(cluster: Cluster, kubelet: ScriptedKubelet, pod: str) -> None:
    kubelet.spdy_protocol = "v2.channel.k8s.io"
    async with cluster.session.ws_connect(f"{pod}/exec?command=sh&command=-c&command=exit+7&stdout=1", protocols=[V5]) as socket:
        message = final_status(await received(socket))["message"]
    assert message.startswith('Internal error occurred: error executing remote command: {"metadata"')


async def test_other_websockets_go_to_the_kubelet_as_they_are(cluster: Cluster, kubelet: ScriptedKubelet, pod: str) -> None:
    async with cluster.session.ws_connect(f"{pod}/exec?command=echo&command=hi&stdout=1", protocols=[V4]) as socket:
        assert socket.protocol == V4
        messages = await received(socket)
    assert messages[0] == b"\x01hi\n"
    assert final_status(messages)["status"] == "Success"
    assert (kubelet.last.method, kubelet.last.headers["upgrade"]) == ("GET", "websocket")


async def test_a_kubelet_that_dies_has_said_nothing_which_kubernetes_takes_for_success(
    cluster: Cluster, kubelet: ScriptedKubelet, pod: str
) -> None:
    async def command(words: list[str], terminal: Terminal) -> int:
        await terminal.write("stdout", b"begun")
        kubelet.die()
        return 0

    kubelet.command = command
    async with cluster.session.ws_connect(f"{pod}/exec?command=x&stdout=1", protocols=[V5]) as socket:
        messages = await received(socket)
    assert (messages[1], final_status(messages)) == (b"\x01begun", {"metadata": {}, "status": "Success"})


@pytest.mark.parametrize(("protocol", "first"), [("binary.k8s.io", b""), ("base64.binary.k8s.io", "")])
async def test_a_followed_log_comes_in_messages(
    cluster: Cluster, kubelet: ScriptedKubelet, pod: str, protocol: str, first: bytes | str
) -> None:
    async with cluster.session.ws_connect(f"{pod}/log?follow=1", protocols=[protocol]) as socket:
        assert socket.protocol == protocol
        assert (await socket.receive()).data == first
        text = b""
        async with asyncio.timeout(10):
            while text != b"one\ntwo\n":
                data = (await socket.receive()).data
                text += base64.b64decode(data) if isinstance(data, str) else data
    kubelet.log_goes_on.set()


async def test_a_log_in_a_protocol_that_there_is_not_is_forbidden(cluster: Cluster, pod: str) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await cluster.session.ws_connect(f"{pod}/log", protocols=["odd"])
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("command", "message"),
    [
        pytest.param("echo+hi", None, id="a command that succeeds"),
        pytest.param("echo+hi%0Aexit+7", "terminated with exit code 7", id="a command that fails"),
    ],
)
async def test_a_kubelet_that_resets_its_streams_after_the_outcome_has_ended_in_order(
    cluster: Cluster, kubelet: ScriptedKubelet, pod: str, command: str, message: str | None
) -> None:
    kubelet.resets_streams = True
    query = f"command=sh&command=-c&command={command}&stdout=1&stderr=1"
    async with cluster.session.ws_connect(f"{pod}/exec?{query}", protocols=[V5]) as socket:
        messages = await received(socket)
    assert b"".join(one[1:] for one in messages if one[:1] == b"\x01") == b"hi\n"
    outcome = final_status(messages)
    assert outcome["status"] == ("Failure" if message else "Success")
    assert (message or "") in outcome.get("message", "")


async def test_a_client_that_sends_malformed_messages_ends_its_websocket(tmp_path: Path) -> None:
    async with ScriptedKubelet() as kubelet, cluster_with(KubeletCredentials(), tmp_path) as cluster:
        pod = await cluster.pod("web", await cluster.node(kubelet))
        for message in (b"\xff", b"\xff\x09", b"\xff\x00\x00", b"\x01x", b"\x07x", b""):
            async with cluster.session.ws_connect(f"{pod}/exec?command=cat&stdin=1&stdout=1", protocols=[V5]) as socket:
                assert (await socket.receive()).data == b"\x01"
                await socket.send_bytes(message)
                await socket.send_bytes(b"\xff\x00")
                async with asyncio.timeout(5):
                    while (await socket.receive()).type is aiohttp.WSMsgType.BINARY:
                        pass
