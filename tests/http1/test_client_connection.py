"""Framing of HTTP/1.1 answers (RFC 9112), wherever the pieces are cut; ambiguous framing is refused."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.http1.client_connection import READ_BUFFER, WRITE_SLICE, ClientConnection
from kubeloop.http1.client_heads import parse_head
from kubeloop.http1.errors import ConnectionEnded, ProtocolError
from kubeloop.http1.headers import Headers
from tests.pipe import Pipe

CRLF = b"\r\n"


async def begun(method: str = "GET", body: bytes | None = None) -> tuple[ClientConnection, Pipe, asyncio.Task[tuple[int, Headers]]]:
    """A wire whose request is being sent."""
    wire, pipe = ClientConnection(), Pipe()
    wire.connection_made(pipe)
    exchange = asyncio.create_task(wire.exchange(method, b"GET / HTTP/1.1\r\n\r\n", body))
    await asyncio.sleep(0)
    return wire, pipe, exchange


async def answered(*pieces: bytes, method: str = "GET", then_closed: bool = False) -> tuple[int, bytes, ClientConnection]:
    """Status and whole body of an answer that comes in these pieces."""
    wire, _, exchange = await begun(method)
    for piece in pieces:
        wire.data_received(piece)
    if then_closed:
        wire.eof_received()
        wire.connection_lost(None)
    status, _ = await exchange
    body = b""
    while chunk := await wire.chunk():
        body += chunk
    return status, body, wire


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


CHUNKED = head("Transfer-Encoding: chunked")


@pytest.mark.parametrize(
    ("answer", "body", "kept"),
    [
        pytest.param(head("Content-Length: 5") + b"hello", b"hello", True, id="a length says where the body ends"),
        pytest.param(head("Content-Length: 0"), b"", True, id="an empty body is complete at once"),
        pytest.param(CHUNKED + b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n", b"hello world", True, id="chunks, with extensions"),
        pytest.param(CHUNKED + b"1\r\nx\r\n0\r\nTrailer: y\r\n\r\n", b"x", True, id="trailers are read over"),
        pytest.param(head(status="204 No Content"), b"", True, id="204 has no body"),
        pytest.param(
            head("Content-Length: 2", "Connection: close") + b"ok", b"ok", False, id="a connection that the server closes is not kept"
        ),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", False, id="an old server's neither"),
        pytest.param(head("Content-Length: 2", "Content-Length: 2") + b"ok", b"ok", True, id="the same length twice is clear"),
        pytest.param(head(status="100 Continue") + head("Content-Length: 2") + b"ok", b"ok", True, id="an interim answer is read over"),
        pytest.param(
            head("Transfer-Encoding: chunked", "Content-Length: 3") + b"0\r\n\r\n",
            b"",
            False,
            id="chunks beside a length end the connection",
        ),
        pytest.param(
            head("Content-Length: 2", "Connection: keep-alive, disclosed") + b"ok", b"ok", True, id="an option that only looks like close"
        ),
        pytest.param(head("Content-Length: 2", "Connection: Upgrade, CLOSE") + b"ok", b"ok", False, id="close among other options"),
        pytest.param(
            head("Content-Length: 2") + b"ok\r\n", b"ok", False, id="bytes behind a complete answer end the connection, not the answer"
        ),
        pytest.param(
            head("Content-Length: 2") + b"ok" + head("Content-Length: 4") + b"evil",
            b"ok",
            False,
            id="a second answer is not kept for the next request",
        ),
        pytest.param(head(status="204 No Content") + b"body", b"", False, id="204 with a body all the same"),
        pytest.param(
            head(
                status="304 Not Modified",
            )
            + b"",
            b"",
            True,
            id="304 has no body",
        ),
        pytest.param(head(status="103 Early Hints") * 3 + head("Content-Length: 2") + b"ok", b"ok", True, id="several interim answers"),
        pytest.param(CHUNKED + b'00000002 ; a="b"\r\nok\r\n000\r\n\r\n', b"ok", True, id="zeros and blanks around a chunk's size"),
    ],
)
async def test_an_answer_is_read(answer: bytes, body: bytes, kept: bool) -> None:
    _, whole, wire = await answered(answer)
    assert (whole, wire.reusable) == (body, kept)
    _, pieces, wire = await answered(*(answer[at : at + 1] for at in range(len(answer))))
    assert (pieces, wire.reusable) == (body, kept)


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    status, body, wire = await answered(head() + b"one", b"two", then_closed=True)
    assert (status, body, wire.reusable) == (200, b"onetwo", False)


async def test_the_answer_to_head_has_no_body() -> None:
    assert (await answered(head("Content-Length: 5"), method="HEAD"))[1] == b""


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", id="another protocol"),
        pytest.param(b"HTTP/2 200\r\n\r\n", id="another version"),
        pytest.param(b"HTTP/1.1 20 OK\r\n\r\n", id="a status of two digits"),
        pytest.param(head("Content-Length: 1", "Content-Length: 2"), id="two lengths"),
        pytest.param(head("Content-Length: -1"), id="a negative length"),
        pytest.param(head("Transfer-Encoding: gzip, chunked"), id="a coding that was not asked for"),
        pytest.param(head("No colon"), id="a header without a colon"),
        pytest.param(head("Name : value"), id="a blank before the colon"),
        pytest.param(head("A: b", " folded"), id="a folded header"),
        pytest.param(CHUNKED + b"x\r\n", id="a chunk without a size"),
        pytest.param(CHUNKED + b"-1\r\n", id="a chunk of negative size"),
        pytest.param(CHUNKED + b"1_0\r\n", id="a chunk size that only Python reads"),
        pytest.param(CHUNKED + b"1\r\nxyz", id="a chunk longer than it says"),
        pytest.param(CHUNKED + b"0x1\r\n", id="a chunk size with a prefix"),
        pytest.param(CHUNKED + b"1;a\nb\r\nx\r\n", id="half a line break in a chunk extension"),
        pytest.param(CHUNKED + b"11111111111111111\r\n", id="a chunk size of 17 digits"),
        pytest.param(head("Content-Length: 1") + b"xy", id="more than the length says"),
        pytest.param(head("Content-Length: " + "9" * 5000), id="a length of thousands of digits"),
        pytest.param(head("Content-Length: "), id="an empty length"),
        pytest.param(head("Content-Length: 1_0"), id="a length that only Python reads"),
        pytest.param(head("A: b\nContent-Length: 0"), id="half a line break in a header"),
        pytest.param(head("A: b\rc"), id="the other half"),
        pytest.param(head("A: b\0c"), id="a zero byte in a header"),
        pytest.param(head("A(b): c"), id="a header name that is none"),
        pytest.param(head(status="101 Switching Protocols"), id="another protocol from here on"),
        pytest.param(b"HTTP/1.1 099 X\r\n\r\n", id="a status below 100"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="a greeting after which the server waits"),
        pytest.param(b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", id="lines that end without CR"),
        pytest.param(head(status="100 Continue") * 20_000, id="interim answers without end"),
        pytest.param(CHUNKED + b"0\r\n" + b"a: b\r\n" * 100_000, id="trailers without end"),
        pytest.param(b"H" * (1 << 19), id="a head that does not end"),
        pytest.param(CHUNKED + b"1" * (1 << 13), id="a chunk size that does not end"),
    ],
)
async def test_an_ambiguous_answer_is_refused_and_the_connection_ended(answer: bytes) -> None:
    wire, pipe, exchange = await begun()
    wire.data_received(answer)

    async def read() -> None:
        await exchange
        while await wire.chunk():
            pass
        await wire.exchange("GET", b"", None)

    with pytest.raises(ProtocolError):
        await read()
    assert pipe.aborted
    assert not wire.reusable


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([], id="before the answer"),
        pytest.param([b"HTTP/1.1 2"], id="within the head"),
        pytest.param([head("Content-Length: 5") + b"hel"], id="within the body"),
        pytest.param([CHUNKED + b"5\r\nhello\r\n"], id="between two chunks"),
        pytest.param([CHUNKED + b"5\r\nhello\r\n0\r\n"], id="before the empty line after the last chunk"),
    ],
)
async def test_a_connection_that_ends_too_early_is_an_error(pieces: list[bytes]) -> None:
    with pytest.raises(ConnectionEnded):
        await answered(*pieces, then_closed=True)


async def test_a_connection_that_is_torn_down_here_does_not_complete_a_body_without_a_length() -> None:
    wire, _, _ = await begun()
    wire.data_received(head() + b"half")
    wire.connection_lost(None)
    assert await wire.chunk() == b"half"
    with pytest.raises(ConnectionEnded):
        await wire.chunk()


async def test_data_without_a_request_ends_the_connection() -> None:
    _, _, wire = await answered(head("Content-Length: 0"))
    wire.data_received(b"HTTP/1.1 200 OK\r\n")
    assert not wire.reusable


async def test_a_reader_that_is_slow_holds_the_server_back() -> None:
    wire, pipe, exchange = await begun()
    wire.data_received(head(f"Content-Length: {4 * READ_BUFFER}"))
    await exchange
    for _ in range(4):
        wire.data_received(b"x" * (READ_BUFFER // 2))
    assert not pipe.reading
    assert len(await wire.chunk()) == 2 * READ_BUFFER
    assert pipe.reading


async def test_a_large_body_is_written_as_fast_as_the_socket_takes_it() -> None:
    wire, pipe, exchange = await begun()
    wire.data_received(head("Content-Length: 0"))
    await exchange
    wire.pause_writing()
    again = asyncio.create_task(wire.exchange("POST", b"head", b"x" * (3 * WRITE_SLICE)))
    pipe.written = b""
    await asyncio.sleep(0)
    assert pipe.written == b"head"
    wire.resume_writing()
    await asyncio.sleep(0)
    assert len(pipe.written) == 4 + 3 * WRITE_SLICE
    wire.data_received(head("Content-Length: 0"))
    await again
    assert wire.reusable


async def test_an_answer_that_comes_before_the_body_is_sent_is_read_and_the_rest_not_sent() -> None:
    wire, pipe, _ = await begun()
    wire.data_received(head("Content-Length: 0"))
    wire.pause_writing()
    post = asyncio.create_task(wire.exchange("POST", b"head", b"x" * (3 * WRITE_SLICE)))
    await asyncio.sleep(0)
    pipe.written = b""
    wire.data_received(head("Content-Length: 3", status="413 X") + b"big")
    assert (await post)[0] == 413
    assert await wire.chunk() == b"big"
    assert pipe.written == b""
    assert not wire.reusable


async def test_a_connection_that_ends_while_a_body_is_written_is_an_error() -> None:
    wire, _, _ = await begun()
    wire.data_received(head("Content-Length: 0"))
    wire.pause_writing()
    post = asyncio.create_task(wire.exchange("POST", b"head", b"x" * (3 * WRITE_SLICE)))
    await asyncio.sleep(0)
    wire.connection_lost(ConnectionResetError(104, "reset"))
    with pytest.raises(ConnectionResetError):
        await post


async def test_one_answer_is_read_by_one_task() -> None:
    wire, _, exchange = await begun()
    wire.data_received(head("Content-Length: 5"))
    await exchange
    first = asyncio.create_task(wire.chunk())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="two tasks read one answer"):
        await wire.chunk()
    wire.data_received(b"hello")
    assert await first == b"hello"


@given(chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=6), cuts=st.lists(st.integers(0, 400), max_size=12))
@settings(max_examples=100, deadline=None)
def test_the_same_body_whatever_the_cuts(chunks: list[bytes], cuts: list[int]) -> None:
    answer = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in chunks) + b"0\r\n\r\n"
    at = sorted({0, len(answer), *(cut for cut in cuts if cut < len(answer))})
    pieces = [answer[start:end] for start, end in itertools.pairwise(at)]
    assert asyncio.run(answered(*pieces))[1] == b"".join(chunks)


def test_a_repeated_header_keeps_its_values_apart() -> None:
    _, _, headers = parse_head(b"HTTP/1.1 200 OK\r\nWarning: a\r\nwarning: b, c")
    assert headers.values_of("WARNING") == ["a", "b, c"]
    assert headers["Warning"] == "a, b, c"
    assert "other" not in headers
