"""What the client makes of a server's protocol, message by message, and of servers that break it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from websockets.frames import Opcode

from kubeloop.api.core.v1 import Container, Pod, PodSpec, PodStatus
from kubeloop.client.streams import ExecSession, StreamError
from kubeloop.client.streams.session import exit_code
from kubeloop.client.streams.targets import PortRequest, parse_port
from kubeloop.client.streams.websocket import MAX_MESSAGE
from kubeloop.meta import ApiError, BadRequest, Forbidden, InternalError, NotFound, ObjectMeta, TransportError
from kubeloop.serving.spdy import SpdyStream
from kubeloop.timing import FakeClock
from tests.client.streams.peer import SUCCESS, Peer, Serve, UpgradeRequest, serve_spdy

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
POD = Pod(
    metadata=ObjectMeta(name="web", namespace="shop"),
    spec=PodSpec(node_name="n1", containers=[Container(name="main")]),
    status=PodStatus(phase="Running"),
)
WHERE = 'exec in container "main" of pod "web" in namespace "shop"'


def _failure(code: int) -> bytes:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return json.dumps({"status": "Failure", "reason": "NonZeroExitCode", "message": "x", "details": {"causes": causes}}).encode()


async def test_q198_a_channel_byte_leads_each_frame_and_closing_stdin_is_a_close_frame_after_which_output_still_arrives() -> None:
    got: list[bytes | None] = []

    async def serve(call: UpgradeRequest) -> None:
        assert call.headers["sec-websocket-protocol"] == V5
        call.accept(V5)
        call.send(b"\x01", b"\x01out", b"\x02err")
        got.extend([await call.message() for _ in range(3)])
        call.send(b"\x01late", b"\x02", b"\xff\x01", b"\x03" + SUCCESS)
        call.end()
        await call.message()

    async with Peer(serve) as peer, peer.client.pods.exec_stream(POD, ["cat"], stdin=True) as session:
        assert [((await anext(session)).name), ((await anext(session)).data)] == ["stdout", b"err"]
        await session.write(b"in")
        await session.write(b"x" * 40_000)
        await session.close_stdin()
        assert [(output.name, output.data) async for output in session] == [("stdout", b"late")]
        assert session.exit_code == 0
    # Longer input goes in pieces of 32 KiB.
    assert [one and one[:3] for one in got] == [b"\x00in", b"\x00xx", b"\x00xx"]
    assert peer.calls[0].target == ("/api/v1/namespaces/shop/pods/web/exec?container=main&command=cat&stdin=true&stdout=true&stderr=true")


async def test_q198_the_end_of_input_is_a_close_signal() -> None:
    got: list[bytes | None] = []

    async def serve(call: UpgradeRequest) -> None:
        call.accept(V5)
        got.extend([await call.message() for _ in range(2)])
        call.send(b"\x03" + SUCCESS)
        call.end()

    async with Peer(serve) as peer:
        assert (await peer.client.pods.exec(POD, ["cat"], stdin=b"all")).ok
    assert got == [b"\x00all", b"\xff\x00"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(SUCCESS, 0, id="success is 0"),
        pytest.param(_failure(7), 7, id="a non-zero code is the cause ExitCode"),
        pytest.param(_failure(255), 255, id="the largest"),
    ],
)
def test_q199_an_exit_code_is_read_from_the_status_on_the_error_channel(message: bytes, expected: int) -> None:
    assert exit_code(message, WHERE) == expected


@pytest.mark.parametrize(
    ("message", "error", "says"),
    [
        pytest.param(b'{"status":"Failure","reason":"InternalError","message":"no such container"}', InternalError, "no such", id="other"),
        pytest.param(b'{"status":"Failure","reason":"NonZeroExitCode"}', StreamError, "has no exit code", id="a code without a cause"),
        pytest.param(b'{"status":"Failure","message":"x"}', ApiError, f"x.*{WHERE}", id="without a reason"),
        pytest.param(b'{"x":' + b"[" * 100_000, StreamError, "the outcome is not a Status", id="brackets without end"),
        pytest.param(b"not json", StreamError, "the outcome is not a Status: 'not json'", id="no JSON"),
        pytest.param(_failure(7).replace(b'"7"', b'"x7"'), StreamError, "has no exit code", id="a code that is no number"),
    ],
)
def test_q199_a_message_that_is_no_exit_code_is_an_error_that_names_the_place(message: bytes, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        exit_code(message, WHERE)


async def _pinged(serve: Callable[[UpgradeRequest], Awaitable[None]], then: Callable[[ExecSession, FakeClock], Awaitable[None]]) -> None:
    clock = FakeClock()
    async with asyncio.timeout(30), Peer(serve, clock) as peer, peer.client.pods.exec_stream(POD, ["x"]) as session:
        await then(session, clock)


async def test_q200_a_ping_goes_out_each_5_s_and_answers_keep_the_session_alive() -> None:
    pings: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(call: UpgradeRequest) -> None:
        call.accept(V5)
        while (frame := await call.frame()) is not None:
            if frame.opcode is Opcode.PING:
                pings.put_nowait(bytes(frame.data))

    async def then(session: ExecSession, clock: FakeClock) -> None:
        waiting = asyncio.ensure_future(session.wait())
        for _ in range(20):
            await clock.advance(5)
            await pings.get()
            # The answer is on its way: it is read in real time, so that the loop has to turn until it came.
            await _turns()
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    await _pinged(serve, then)


async def test_q200_no_pong_within_61_s_ends_the_session_with_an_error() -> None:
    async def serve(call: UpgradeRequest) -> None:
        call.accept(V5)
        await asyncio.Event().wait()

    async def then(session: ExecSession, clock: FakeClock) -> None:
        waiting = asyncio.ensure_future(session.wait())
        await _turns()
        await clock.advance(60)
        assert not waiting.done()
        await clock.advance(5)
        with pytest.raises(TransportError, match="has sent nothing for 61 s, not even answers to pings: the connection is dead"):
            await waiting

    await _pinged(serve, then)


async def test_pings_of_the_server_are_answered_while_a_write_waits() -> None:
    async def serve(call: UpgradeRequest) -> None:
        call.accept(V5)
        call.frames.send_ping(b"are you there")
        call.flush()
        while (frame := await call.frame()) is not None:
            if frame.opcode is Opcode.PONG:
                assert frame.data == b"are you there"
                call.send(b"\x03" + SUCCESS)
                call.end()

    async with asyncio.timeout(30), Peer(serve) as peer, peer.client.pods.exec_stream(POD, ["x"], stdin=True) as session:
        writing = asyncio.ensure_future(session.write(b"x" * 20_000_000))
        assert await session.wait() == 0
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def _said_by_spdy(streams: dict[str, SpdyStream]) -> None:
    given = b""
    while data := await streams["stdin"].read():
        given += data
    await streams["stdout"].write(given.upper())
    await streams["error"].write(_failure(3))
    for stream in streams.values():
        await stream.close()


@pytest.mark.parametrize(
    "status",
    ["400 Bad Request", "403 Forbidden", "500 Internal Server Error", "200 OK"],
)
async def test_q201_an_upgrade_that_is_refused_falls_back_to_spdy_once(status: str) -> None:
    async def serve(call: UpgradeRequest) -> None:
        if call.headers["upgrade"] == "websocket":
            call.say(status, b"no")
        else:
            assert (call.method, call.headers["x-stream-protocol-version"]) == ("POST", f"{V5}, {V4}")
            await serve_spdy(call, 4, _said_by_spdy, V4)

    async with Peer(serve) as peer:
        result = await peer.client.pods.exec(POD, ["x"], stdin=b"abc")
        assert (result.stdout, result.exit_code) == (b"ABC", 3)
        assert [call.headers["upgrade"] for call in peer.calls] == ["websocket", "SPDY/3.1"]


async def _reset_after_the_outcome(streams: dict[str, SpdyStream]) -> None:
    await streams["stdout"].write(b"out")
    await streams["stdout"].reset()
    for _ in range(100):  # the client reads this reset before the outcome comes
        await asyncio.sleep(0)
    await streams["error"].write(_failure(3))
    for stream in streams.values():
        await stream.reset()


async def test_streams_that_a_kubelet_resets_after_the_outcome_have_ended_in_order() -> None:
    async def serve(call: UpgradeRequest) -> None:
        if call.headers["upgrade"] == "websocket":
            call.say("400 Bad Request", b"no")
        else:
            await serve_spdy(call, 3, _reset_after_the_outcome, V4)

    async with Peer(serve) as peer:
        result = await peer.client.pods.exec(POD, ["x"])
        assert (result.stdout, result.exit_code) == (b"out", 3)


async def test_q201_what_both_refuse_is_refused_with_the_last_answer() -> None:
    async def serve(call: UpgradeRequest) -> None:
        call.say("403 Forbidden", b"first" if call.headers["upgrade"] == "websocket" else b"last")

    async with Peer(serve) as peer:
        with pytest.raises(Forbidden, match=f"last.*{WHERE}"):
            await peer.client.pods.exec(POD, ["x"])
        assert len(peer.calls) == 2


@pytest.mark.parametrize(
    ("serve", "error", "asked"),
    [
        pytest.param(lambda call: _answer(call, "404 Not Found"), NotFound, 1, id="a pod that is gone"),
        pytest.param(lambda call: _answer(call, ""), TransportError, 1, id="a connection that breaks"),
        pytest.param(lambda call: _outcome(call, _failure(9)), None, 1, id="an exit code"),
        pytest.param(lambda call: _answer(call, "302 Found"), TransportError, 1, id="a redirect"),
    ],
)
async def test_q201_nothing_else_falls_back(serve: Serve, error: type[Exception] | None, asked: int) -> None:
    async with Peer(serve) as peer:
        if error is None:
            assert (await peer.client.pods.exec(POD, ["x"])).exit_code == 9
        else:
            with pytest.raises(error):
                await peer.client.pods.exec(POD, ["x"])
        assert len(peer.calls) == asked


async def test_q201_a_proxy_that_refuses_is_no_reason_to_fall_back() -> None:
    import msgspec

    from kubeloop.client import Client
    from kubeloop.transport import Transport

    async def serve(call: UpgradeRequest) -> None:
        call.say("502 Bad Gateway")

    async with Peer(serve) as peer:
        config = msgspec.structs.replace(
            peer.client.transport.config, server="https://api.example", proxy_url=peer.client.transport.config.server
        )
        async with Client(Transport(config)) as client:
            with pytest.raises(TransportError, match="refused: HTTP status 502 to CONNECT"):
                await client.pods.exec(POD, ["x"])
        assert [call.method for call in peer.calls] == ["CONNECT"]


async def test_v4_is_enough_where_no_input_has_to_end() -> None:
    async def serve(call: UpgradeRequest) -> None:
        assert call.headers["sec-websocket-protocol"] == f"{V5}, {V4}"
        call.accept(V4)
        await _outcome(call, SUCCESS, accept=False)

    async with Peer(serve) as peer, peer.client.pods.exec_stream(POD, ["sh"], stdin=True, tty=True) as session:
        assert session.protocol == V4
        with pytest.raises(StreamError, match=r"speaks v4.channel.k8s.io, which cannot end the input"):
            await session.close_stdin()
        assert await session.wait() == 0


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        pytest.param("5000:6000", PortRequest(5000, "6000"), id="local and remote"),
        pytest.param(":6000", PortRequest(0, "6000"), id="any local port"),
        pytest.param("0:6000", PortRequest(0, "6000"), id="any local port, said as 0"),
        pytest.param("6000", PortRequest(6000, "6000"), id="the same at both ends"),
        pytest.param(6000, PortRequest(6000, "6000"), id="a number"),
        pytest.param("5000:http", PortRequest(5000, "http"), id="a name"),
        pytest.param("http", PortRequest(-1, "http"), id="a name at both ends"),
    ],
)
def test_q202_ports_are_named_as_local_remote(ports: str | int, expected: PortRequest) -> None:
    assert parse_port(ports) == expected


@pytest.mark.parametrize("ports", ["", ":", "1:2:3", "70000", ":0", "x:80", "70000:80", "9" * 5000, "80:", -1, "80 :90"])
def test_q202_a_value_that_is_no_port_is_refused(ports: str | int) -> None:
    with pytest.raises(ValueError, match="port"):
        parse_port(ports)


def _cut(*pieces: bytes) -> Serve:
    """A server that says these bytes behind its handshake and ends the connection."""

    async def serve(call: UpgradeRequest) -> None:
        call.accept(V5)
        for piece in pieces:
            call.writer.write(piece)
        await call.writer.drain()

    return serve


async def _closed(call: UpgradeRequest, code: int) -> None:
    call.accept(V5)
    call.end(code)
    await call.message()


def _handshake(**headers: str) -> Serve:
    async def serve(call: UpgradeRequest) -> None:
        if call.headers["upgrade"] == "websocket":
            call.say("101 Switching Protocols", headers=headers, Upgrade="websocket", Connection="Upgrade")
        await call.reader.read()

    return serve


@pytest.mark.parametrize(
    ("serve", "error", "says"),
    [
        pytest.param(_cut(), TransportError, "ended without a closing handshake", id="a cut after the handshake"),
        pytest.param(_cut(b"\x82\x05\x01ou"), TransportError, "ended without a closing handshake", id="a cut within a frame"),
        pytest.param(_cut(b"\x82\x04\x01out", b"\x88\x02\x03\xe8"), TransportError, "before the command's outcome came", id="no outcome"),
        pytest.param(_cut(b"\x82\xff" + b"\xff" * 8), StreamError, "broke the WebSocket protocol", id="a frame of 2**64 bytes"),
        pytest.param(_cut(b"\x82\x7f" + (MAX_MESSAGE + 1).to_bytes(8, "big")), StreamError, "exceeds limit", id="a large frame"),
        pytest.param(_cut(b"\xf2\x01\x01"), StreamError, "reserved bits", id="bits that were not agreed on"),
        pytest.param(_cut(b"\x82\x81\x00\x00\x00\x00\x01"), StreamError, "incorrect masking", id="a masked frame"),
        pytest.param(lambda call: _closed(call, 1011), StreamError, "closed the WebSocket with code 1011", id="an error of the server"),
        pytest.param(_handshake(), StreamError, "does not answer the key", id="no answer to the key"),
        pytest.param(_handshake(Sec_WebSocket_Accept="x"), StreamError, "does not answer the key", id="a wrong answer to the key"),
    ],
)
async def test_a_server_that_breaks_the_protocol_is_distinguished_from_a_command_that_fails(
    serve: Serve, error: type[Exception], says: str
) -> None:
    async with asyncio.timeout(30), Peer(serve) as peer:
        with pytest.raises(error, match=rf"{WHERE}.*({says})"):
            await peer.client.pods.exec(POD, ["x"])


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        pytest.param({"Sec_WebSocket_Extensions": "permessage-deflate"}, "extensions that were not offered", id="an extension"),
        pytest.param({"Sec_WebSocket_Protocol": "odd"}, 'it chose the protocol "odd", where v5', id="an unknown protocol"),
    ],
)
async def test_a_handshake_may_not_choose_what_was_not_offered(headers: dict[str, str], says: str) -> None:
    async def serve(call: UpgradeRequest) -> None:
        call.accept(headers.get("Sec_WebSocket_Protocol", V5), **{k: v for k, v in headers.items() if "Extensions" in k})
        await call.reader.read()

    async with Peer(serve) as peer:
        with pytest.raises(StreamError, match=says):
            await peer.client.pods.exec(POD, ["x"])


async def test_a_reader_that_is_slow_holds_the_command_back() -> None:
    sent = 0

    async def serve(call: UpgradeRequest) -> None:
        nonlocal sent
        call.accept(V5)
        for _ in range(10_000):
            call.send(b"\x01" + bytes(64 * 1024))
            await call.writer.drain()
            sent += 64 * 1024

    async with asyncio.timeout(30), Peer(serve) as peer, peer.client.pods.exec_stream(POD, ["yes"]) as session:
        await anext(session)
        for _ in range(5_000):
            await asyncio.sleep(0)
        # What the kernel's buffers hold, and 1 MiB here.
        assert sent < 100 << 20


async def test_a_message_in_fragments_is_one_message() -> None:
    async def serve(call: UpgradeRequest) -> None:
        call.accept(V5)
        # A ping may come between the fragments of a message (RFC 6455, section 5.4).
        call.writer.write(b"\x02\x03\x01ab" + b"\x89\x00" + b"\x80\x02cd")
        call.send(b"\x03" + SUCCESS)
        call.end()
        await call.message()

    async with Peer(serve) as peer:
        assert (await peer.client.pods.exec(POD, ["x"])).stdout == b"abcd"


async def test_bytes_that_come_one_at_a_time_make_the_same_messages() -> None:
    async def serve(call: UpgradeRequest) -> None:
        call.accept(V5)
        call.frames.send_binary(b"\x01slow")
        call.frames.send_binary(b"\x03" + _failure(4))
        call.frames.send_close(1000)
        for byte in b"".join(call.frames.data_to_send()):
            call.writer.write(bytes((byte,)))
            await call.writer.drain()
            await asyncio.sleep(0)
        await call.message()

    async with Peer(serve) as peer:
        result = await peer.client.pods.exec(POD, ["x"])
        assert (result.stdout, result.exit_code) == (b"slow", 4)


async def test_a_spdy_connection_that_ends_before_the_outcome_is_an_error() -> None:
    async def answer(streams: dict[str, SpdyStream]) -> None:
        await streams["stdout"].write(b"begun")
        raise ConnectionAbortedError

    async def serve(call: UpgradeRequest) -> None:
        if call.headers["upgrade"] == "websocket":
            call.say("400 Bad Request")
        else:
            await serve_spdy(call, 3, answer, V5)

    async with asyncio.timeout(30), Peer(serve) as peer:
        with pytest.raises(TransportError, match=f"{WHERE}.*before the command's outcome came"):
            await peer.client.pods.exec(POD, ["x"])


async def test_a_spdy_server_that_speaks_only_older_protocols_is_named() -> None:
    async def serve(call: UpgradeRequest) -> None:
        if call.headers["upgrade"] == "websocket":
            call.say("400 Bad Request")
        else:
            call.say("101 Switching Protocols", Upgrade="SPDY/3.1", Connection="Upgrade", X_Stream_Protocol_Version="v2.channel.k8s.io")
            await call.reader.read()

    async with Peer(serve) as peer:
        with pytest.raises(StreamError, match=r'speaks "v2.channel.k8s.io" inside SPDY.*too old'):
            await peer.client.pods.exec(POD, ["x"])


async def test_a_refusal_is_raised_with_its_reason_and_place() -> None:
    async def serve(call: UpgradeRequest) -> None:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": "BadRequest",
            "code": 400,
            "message": "pod web is odd",
        }
        call.say("400 Bad Request", json.dumps(status).encode(), Content_Type="application/json")

    async with Peer(serve) as peer:
        with pytest.raises(BadRequest, match=f"pod web is odd.*{WHERE}"):
            await peer.client.pods.exec(POD, ["x"])


async def _turns() -> None:
    """Let the data that is under way between two sockets of this process arrive."""
    for _ in range(50):
        await asyncio.sleep(0)


async def _answer(call: UpgradeRequest, status: str) -> None:
    if status:
        call.say(status, b"x")


async def _outcome(call: UpgradeRequest, outcome: bytes, *, accept: bool = True) -> None:
    if accept:
        call.accept(V5)
    call.send(b"\x03" + outcome)
    call.end()
    await call.message()


async def test_what_goes_through_a_socket_is_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def serve(call: UpgradeRequest) -> None:
        call.accept(V5)
        await call.message()
        await _outcome(call, SUCCESS, accept=False)

    with caplog.at_level("DEBUG"):
        async with Peer(serve) as peer:
            await peer.client.pods.exec(POD, ["login"], stdin=b"my-password")
    ours = [record.getMessage() for record in caplog.records if record.name != "websockets.server"]
    assert not [message for message in ours if "my-password" in message]
