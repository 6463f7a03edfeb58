"""Answers that are cut or framed as HTTP does not allow, over TLS: errors that name what was asked, never guesses."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubeloop.meta import ApiError, TransportError
from kubeloop.transport import Transport
from tests.faults import FaultServer, Reply

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
ENDED = "the connection ended before the answer was complete"


def cut(*endings: str) -> list[Any]:
    """Each place where an answer may end, with each way to end it there."""
    places = {
        "before the answer": b"",
        "in the status line": b"HTTP/1.1 2",
        "in a header": OK + b"Content-Le",
        "after the head": OK + b"Content-Length: 5\r\n\r\n",
        "in a body of known length": OK + b"Content-Length: 5\r\n\r\nab",
        "in a chunk's size": CHUNKED + b"1",
        "after a chunk's size": CHUNKED + b"5\r\n",
        "in a chunk": CHUNKED + b"5\r\nab",
        "between two chunks": CHUNKED + b"2\r\nab\r\n",
        "in the trailers": CHUNKED + b"2\r\nab\r\n0\r\nX: ",
        "after an interim answer": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
    }
    return [pytest.param(Reply(raw=raw, end=end), id=f"{place}, by {end}") for place, raw in places.items() for end in endings]


@pytest.mark.parametrize("reply", cut("leave", "reset", "tear"))
async def test_an_answer_that_ends_too_early_is_an_error_and_never_a_shorter_answer(reply: Reply) -> None:
    async with FaultServer(reply) as server, Transport(server.config()) as transport:
        with pytest.raises(TransportError, match=rf'faulty"\): {ENDED} \(update pods "a" in namespace "n"\)'):
            await transport.request("PUT", "/api/v1/namespaces/n/pods/a", body=b"{}")
        assert len(server.received) == 1


@pytest.mark.parametrize("reply", cut("reset", "tear"))
async def test_a_stream_gives_what_came_and_then_the_error(reply: Reply) -> None:
    got = b""

    async def read(transport: Transport) -> None:
        nonlocal got
        async with transport.stream("GET", "/x") as stream:
            async for chunk in stream.chunks():
                got += chunk

    async with FaultServer(reply) as server, Transport(server.config()) as transport:
        with pytest.raises(TransportError, match=ENDED):
            await read(transport)
    assert got == (b"ab" if b"ab" in (reply.raw or b"") else b"")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", "is not HTTP", id="another protocol"),
        pytest.param(b"HTTP/2.0 200 OK\r\n\r\n", "is not HTTP", id="another version"),
        pytest.param(b"HTTP/1.1 20 OK\r\n\r\n", "is not HTTP", id="half a status"),
        pytest.param(OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde", "an unclear Content-Length", id="two lengths"),
        pytest.param(OK + b"Content-Length: -1\r\n\r\n", "an unclear Content-Length", id="a length below nothing"),
        pytest.param(OK + b"Content-Length: 0x5\r\n\r\nabcde", "an unclear Content-Length", id="a length that only some can read"),
        pytest.param(OK + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n", "an unclear Content-Length", id="a length without end"),
        pytest.param(OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "an unknown transfer coding", id="a coding that was not asked for"),
        pytest.param(OK + b"Transfer-Encoding: identity\r\n\r\nab", "an unknown transfer coding", id="a coding that is none any longer"),
        pytest.param(CHUNKED + b"zz\r\n", "a chunk without a size", id="a size that is no number"),
        pytest.param(CHUNKED + b"2\r\nabc\r\n", "a chunk is longer than it says", id="a chunk longer than its size"),
        pytest.param(CHUNKED + b"2;" + b"x" * 10_000 + b"\r\n", "a chunk's size line does not end", id="a size line without end"),
        pytest.param(CHUNKED + b"2\nok\n0\n\n", "a line ends with half a line break", id="half line breaks between chunks"),
        pytest.param(CHUNKED + b"0\r\nX: y\n\n", "a line ends with half a line break", id="half line breaks in trailers"),
        pytest.param(CHUNKED + b"0\r\n" + b"X: y\r\n" * 100_000, "the trailers do not end", id="a flood of trailers"),
        pytest.param(OK + b"X: y\r\n" * 100_000, "the head does not end", id="a flood of headers"),
        pytest.param(OK + b"X: " + b"y" * 1_000_000, "the head does not end", id="a header of a megabyte"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 50_000, "the head does not end", id="a flood of interim answers"),
        pytest.param(OK + b"X : y\r\n\r\n", "a malformed header line", id="a blank before the colon"),
        pytest.param(OK + b"X: y\r\n folded\r\n\r\n", "a malformed header line", id="a folded line"),
        pytest.param(OK + b"X: a\nY: b\r\n\r\n", "half a line break", id="half a line break"),
        pytest.param(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "changes to another protocol", id="a protocol without a request for it"),
    ],
)
async def test_a_response_with_wrong_framing_is_refused_and_never_guessed(raw: bytes, text: str) -> None:
    async with FaultServer(Reply(raw=raw, end="leave")) as server, Transport(server.config()) as transport:
        with pytest.raises(TransportError, match=re.escape(text)):
            await transport.request("GET", "/x")
        assert len(server.received) == 1


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", id="HTTP/1.0 with a length"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\nok", id="HTTP/1.0 until the connection ends"),
        pytest.param(OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok", id="Connection: close"),
        pytest.param(OK + b"Connection: close\r\n\r\nok", id="until the connection ends"),
        pytest.param(OK + b"Connection: Keep-Alive, Close\r\nContent-Length: 2\r\n\r\nok", id="close among other options"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\nContent-Length: 99\r\n\r\n2\r\nok\r\n0\r\n\r\n", id="chunks beside a length"),
        pytest.param(OK + b"Content-Length: 2\r\n\r\nok and more", id="more than it said"),
        pytest.param(CHUNKED + b"2\r\nok\r\n0\r\n\r\nmore", id="more after the last chunk"),
    ],
)
async def test_an_answer_that_ends_its_connection_is_read_and_the_connection_not_used_again(raw: bytes) -> None:
    async with FaultServer(Reply(raw=raw, end="leave")) as server, Transport(server.config()) as transport:
        for count in (1, 2):
            assert (await transport.request("GET", "/x")).body == b"ok"
            assert server.connections == count


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, id="after interim answers"),
        pytest.param(b"HTTP/1.1 200\r\n", id="without words"),
        pytest.param(b"HTTP/1.1 200 \xc3\xa9\xff\r\n", id="with words in other letters"),
    ],
)
async def test_an_answer_keeps_its_connection(raw: bytes) -> None:
    reply = Reply(raw=raw + b"Content-Length: 2\r\n\r\nok")
    async with FaultServer(reply) as server, Transport(server.config()) as transport:
        for _ in range(3):
            assert (await transport.request("GET", "/x")).body == b"ok"
        assert server.connections == 1


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(CHUNKED + b"0002;ext=1\r\nok\r\n0\r\nX: y\r\n\r\n", id="extensions and trailers"),
        pytest.param(CHUNKED + b"1\r\no\r\n1\r\nk\r\n000\r\n\r\n", id="a byte at a time"),
        pytest.param(OK + b"Content-Length: 2, 2\r\n\r\nok", id="the same length twice"),
        pytest.param(OK + b"TRANSFER-ENCODING: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", id="in capitals"),
    ],
)
async def test_an_odd_but_clear_response_is_read(raw: bytes) -> None:
    async with FaultServer(Reply(raw=raw)) as server, Transport(server.config()) as transport:
        assert (await transport.request("GET", "/x")).body == b"ok"
        assert (await transport.request("GET", "/x")).body == b"ok"
        assert server.connections == 1


async def test_an_answer_before_the_whole_request_is_the_answer() -> None:
    early = Reply(raw=b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig", end="leave")
    async with FaultServer(early, early_answer=True) as server, Transport(server.config()) as transport:
        with pytest.raises(ApiError, match=r"RequestEntityTooLarge: .*big"):
            await transport.request("POST", "/x", body=b"x" * (8 << 20))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\none\ntwo\n", id="HTTP/1.0, until the connection ends"),
        pytest.param(OK + b"Connection: close\r\n\r\none\ntwo\n", id="HTTP/1.1 without a length"),
        pytest.param(CHUNKED + b"4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n", id="chunks"),
    ],
)
async def test_a_watch_is_read_with_chunks_and_without_row_59(raw: bytes) -> None:
    async with (
        FaultServer(Reply(raw=raw, end="leave")) as server,
        Transport(server.config()) as transport,
        transport.stream("GET", "/api/v1/pods", query={"watch": True}) as stream,
    ):
        assert b"".join([chunk async for chunk in stream.chunks()]) == b"one\ntwo\n"
