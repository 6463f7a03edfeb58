"""Framing of HTTP/1.1 answers (RFC 9112), wherever the pieces are cut; what is unclear is refused."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.transport.http1 import READ_BUFFER, ConnectionEndedError, ProtocolError, Wire, parse_head

CRLF = b"\r\n"


class Pipe(asyncio.Transport):
    """The socket's side of a wire: remembers what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False
        self.reading = True

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


async def answered(*pieces: bytes, method: str = "GET", then_closed: bool = False) -> tuple[int, bytes, Wire]:
    """Status and whole body of an answer that comes in these pieces."""
    wire, pipe = Wire(), Pipe()
    wire.connection_made(pipe)
    exchange = asyncio.create_task(wire.exchange(method, b"GET / HTTP/1.1\r\n\r\n", None))
    await asyncio.sleep(0)
    for piece in pieces:
        wire.data_received(piece)
    if then_closed:
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
        pytest.param(head("Content-Length: 1") + b"xy", id="more than the length says"),
        pytest.param(b"H" * (1 << 19), id="a head that does not end"),
        pytest.param(CHUNKED + b"1" * (1 << 13), id="a chunk size that does not end"),
    ],
)
async def test_what_is_unclear_is_refused_and_the_connection_ended(answer: bytes) -> None:
    wire, pipe = Wire(), Pipe()
    wire.connection_made(pipe)
    exchange = asyncio.create_task(wire.exchange("GET", b"", None))
    await asyncio.sleep(0)
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
    ("pieces", "began"),
    [
        pytest.param([], False, id="before the answer"),
        pytest.param([b"HTTP/1.1 2"], True, id="within the head"),
        pytest.param([head("Content-Length: 5") + b"hel"], True, id="within the body"),
        pytest.param([CHUNKED + b"5\r\nhello\r\n"], True, id="between two chunks"),
    ],
)
async def test_a_connection_that_ends_too_early_is_an_error(pieces: list[bytes], began: bool) -> None:
    with pytest.raises(ConnectionEndedError) as raised:
        await answered(*pieces, then_closed=True)
    assert raised.value.began is began


async def test_data_without_a_request_ends_the_connection() -> None:
    _, _, wire = await answered(head("Content-Length: 0"))
    wire.data_received(b"HTTP/1.1 200 OK\r\n")
    assert not wire.reusable


async def test_a_reader_that_is_slow_holds_the_server_back() -> None:
    wire, pipe = Wire(), Pipe()
    wire.connection_made(pipe)
    exchange = asyncio.create_task(wire.exchange("GET", b"", None))
    await asyncio.sleep(0)
    wire.data_received(head(f"Content-Length: {4 * READ_BUFFER}"))
    await exchange
    for _ in range(4):
        wire.data_received(b"x" * (READ_BUFFER // 2))
    assert not pipe.reading
    assert len(await wire.chunk()) == 2 * READ_BUFFER
    assert pipe.reading


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
