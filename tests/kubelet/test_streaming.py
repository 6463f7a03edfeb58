"""Commands over WebSockets with each subprotocol: the message that reports how the command ended."""

from __future__ import annotations

import json

import pytest
from multidict import CIMultiDict

from kubeloop.kubelet.streaming import V1, V4, V5, Terminal, serve_command
from kubeloop.serving.answer import SocketTakeover
from kubeloop.serving.request import Request


class ClientSocket:
    """A WebSocket whose client sends nothing, and that stores the messages of the server."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.messages: list[bytes | str] = []

    async def receive(self) -> bytes | str | None:
        return None

    async def send(self, message: bytes | str) -> None:
        self.messages.append(message)


def ending(code: int) -> str:
    return f"command terminated with non-zero exit code: exit status {code}"


@pytest.mark.parametrize(
    ("protocol", "code", "expected"),
    [
        pytest.param(V5, 0, {"status": "Success"}, id="version 5 reports success as a Status"),
        pytest.param(V4, 3, {"status": "Failure", "message": ending(3)}, id="version 4 reports a failure as a Status"),
        pytest.param(V1, 0, None, id="the first version reports no success"),
        pytest.param(V1, 3, ending(3), id="the first version reports a failure as text"),
        pytest.param("", 3, ending(3), id="no subprotocol is the first version"),
    ],
)
async def test_the_end_of_a_command(protocol: str, code: int, expected: object) -> None:
    async def run(_: list[str], terminal: Terminal) -> int:
        await terminal.print("output")
        return code

    headers = CIMultiDict({"Upgrade": "websocket", "Sec-WebSocket-Protocol": protocol})

    async def read_body(_: int) -> bytes:
        return b""

    reply = serve_command(Request("GET", "/exec", "command=true&output=1", headers, read_body), run)
    assert isinstance(reply, SocketTakeover)
    assert not protocol or protocol in reply.protocols
    socket = ClientSocket(protocol)
    await reply.serve(socket)
    output, *rest = socket.messages
    assert output == b"\x01output"
    if expected is None:
        assert rest == []
        return
    [report] = rest
    assert isinstance(report, bytes)
    assert report[:1] == b"\x03"
    if isinstance(expected, dict):
        assert expected.items() <= json.loads(report[1:]).items()
    else:
        assert report[1:].decode() == expected
