"""Framing against random answers: what the standard library reads, ours reads, wherever it is cut; and no input makes it hang."""

from __future__ import annotations

import asyncio
import http.client
import io
import itertools
import socket
import string
from dataclasses import dataclass
from typing import cast

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kubeloop.http1.client_connection import ClientConnection
from kubeloop.http1.errors import ConnectionEnded, ProtocolError
from kubeloop.http1.headers import Headers
from tests.pipe import Pipe

_names = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=8).map(lambda name: f"X-{name}")
_values = st.text(string.printable.replace("\r", "").replace("\n", "").replace("\x0b", "").replace("\x0c", ""), max_size=12)
_fields = st.lists(st.tuples(_names, _values), max_size=4)
_blanks = st.sampled_from(["", " ", " \t"])
_bodies = st.lists(st.binary(min_size=1, max_size=60), max_size=5)


@dataclass(frozen=True)
class Sent:
    """An answer as a server may send it; ``closes``: the end of the connection is the end of the body."""

    raw: bytes
    method: str = "GET"
    closes: bool = False


@st.composite
def answers(draw: st.DrawFn) -> Sent:
    status = draw(st.sampled_from([200, 201, 202, 204, 206, 304, 400, 404, 409, 410, 429, 500, 503, 599]))
    method = draw(st.sampled_from(["GET", "HEAD", "POST"]))
    fields = [f"{name}:{draw(_blanks)}{value}" for name, value in draw(_fields)]
    pieces = draw(_bodies)
    # RFC 9112, section 6.1: no Transfer-Encoding in an answer to 204; the standard library would wait for the chunks.
    framing = draw(st.sampled_from(["length", "close"] if status in (204, 304) else ["length", "close", "chunked"]))
    if framing == "length":
        fields.append(f"{draw(st.sampled_from(['Content-Length', 'content-length']))}: {sum(map(len, pieces))}")
        body = b"".join(pieces)
    elif framing == "chunked":
        fields.append(f"Transfer-Encoding: {draw(st.sampled_from(['chunked', 'Chunked']))}")
        extension = draw(st.sampled_from([b"", b";a", b";a=b", b'; a="b c"']))
        body = b"".join(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece) for piece in pieces)
        trailers = "".join(f"{name}: {value}\r\n" for name, value in draw(_fields))
        body += b"0\r\n" + trailers.encode("latin-1") + b"\r\n"
    else:
        body = b"".join(pieces)
    bodiless = method == "HEAD" or status in (204, 304)
    # Only 100: the standard library takes other interim answers for final ones.
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" * draw(st.integers(0, 2))
    first = f"HTTP/1.1 {status}{draw(st.sampled_from([' OK', ' Not So Good', ' ', '']))}"
    head = "\r\n".join([first, *fields, "", ""]).encode("latin-1")
    return Sent(interim + head + (b"" if bodiless else body), method, framing == "close" and not bodiless)


class _File:
    """What http.client wants of a socket."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._raw)


def theirs(sent: Sent) -> tuple[int, list[tuple[str, str]], bytes]:
    answer = http.client.HTTPResponse(cast("socket.socket", _File(sent.raw)), method=sent.method)
    answer.begin()
    fields = sorted((name.lower(), value.strip(" \t")) for name, value in answer.getheaders())
    return answer.status, fields, answer.read()


async def _exchange(pieces: list[bytes], method: str, closed: bool) -> tuple[int, Headers, bytes, ClientConnection]:
    wire = ClientConnection()
    wire.connection_made(Pipe())
    exchange = asyncio.create_task(wire.exchange(method, b"", None))
    await asyncio.sleep(0)
    for piece in pieces:
        wire.data_received(piece)
    if closed:
        wire.eof_received()
        wire.connection_lost(None)
    status, headers = await exchange
    body = b""
    while chunk := await wire.chunk():
        body += chunk
    return status, headers, body, wire


def cut(raw: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(raw), *(place % (len(raw) + 1) for place in at)})
    return [raw[start:end] for start, end in itertools.pairwise(places)]


@given(sent=answers(), at=st.lists(st.integers(0, 2000), max_size=12))
@settings(max_examples=200, deadline=None)
def test_answers_are_read_as_the_standard_library_reads_them_wherever_they_are_cut(sent: Sent, at: list[int]) -> None:
    status, headers, body, wire = asyncio.run(_exchange(cut(sent.raw, at), sent.method, sent.closes))
    fields = sorted((name, value) for name in headers for value in headers.values_of(name))
    assert (status, fields, body) == theirs(sent)
    assert wire.reusable is not sent.closes


def _result(pieces: list[bytes]) -> tuple[int, bytes] | str:
    async def run() -> tuple[int, bytes] | str:
        async with asyncio.timeout(5):
            try:
                status, _, body, wire = await _exchange(pieces, "GET", closed=True)
            except (ProtocolError, ConnectionEnded) as error:
                return type(error).__name__
        assert not wire.reusable
        return status, body

    return asyncio.run(run())


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid answer with some bytes exchanged, left out or put in; or anything at all."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=200))
    raw = bytearray(draw(answers()).raw)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(raw)))
        raw[place : place + draw(st.integers(0, 3))] = draw(
            st.sampled_from([b"", b"\r", b"\n", b"\r\n", b":", b";", b"0", b"9" * 30, b"\0", b"\xff"])
        )
    return bytes(raw)


@given(raw=damaged(), at=st.lists(st.integers(0, 2000), max_size=8))
@example(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-0\n\r\n", at=[54])
@settings(max_examples=200, deadline=None)
def test_no_input_hangs_or_is_read_in_two_ways(raw: bytes, at: list[int]) -> None:
    assert _result(cut(raw, at)) == _result([raw])
