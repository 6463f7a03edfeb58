"""The listener on real sockets: answers, streams and their end, addresses that cannot be had."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from kubeloop.http1.errors import BodyTooLarge
from kubeloop.meta.errors import ConfigError
from kubeloop.serving import connection
from kubeloop.serving.answer import Answer, StreamingResponse
from kubeloop.serving.connection import Handler
from kubeloop.serving.listener import Listener
from kubeloop.serving.request import Request


class Running:
    def __init__(self, handler: Handler) -> None:
        self.listener = Listener(handler, None)

    async def __aenter__(self) -> str:
        await self.listener.bind()
        await self.listener.serve()
        return self.listener.url

    async def __aexit__(self, *_: object) -> None:
        await self.listener.close()


async def test_a_request_arrives_whole_and_its_answer_goes_out_with_repeated_headers() -> None:
    async def handle(request: Request) -> Answer:
        body = await request.read_body(100)
        echo = f"{request.method} {request.path} {request.query} {request.header('x-name')} {body.decode()}"
        return Answer(201, body=echo.encode(), content_type="text/plain", headers=[("Warning", "one"), ("Warning", "two")])

    async with Running(handle) as url, aiohttp.ClientSession() as session:
        answer = await session.post(f"{url}/a%20b?x=1&x=2&y", data=b"hello", headers={"X-Name": "n"})
        assert (answer.status, answer.headers.getall("Warning")) == (201, ["one", "two"])
        assert await answer.text() == "POST /a b {'x': ['1', '2'], 'y': ['']} n hello"


@pytest.mark.parametrize("chunked", [False, True])
async def test_no_more_of_a_body_is_read_than_the_handler_wants(chunked: bool) -> None:
    async def handle(request: Request) -> Answer:
        try:
            await request.read_body(10)
        except BodyTooLarge as fault:
            return Answer(413, body=str(fault).encode())
        return Answer()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"xxxxx"

    async with Running(handle) as url, aiohttp.ClientSession() as session:
        answer = await session.post(url, data=pieces() if chunked else b"x" * 25)
        assert (answer.status, await answer.text()) == (413, "limit is 10")


async def test_a_malformed_request_is_refused_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(_: Request) -> Answer:
        return Answer(200)

    async with Running(handle) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.write(b"GET / HTTP/1.1\r\nHost x\r\n\r\n")
        answer = await reader.read()  # until the server closes
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert not [record for record in caplog.records if record.exc_info or record.levelname == "ERROR"]


async def test_a_handler_that_fails_answers_and_the_next_request_is_served(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(request: Request) -> Answer:
        if request.path == "/fails":
            raise ValueError(request.path)
        return Answer(200)

    async with Running(handle) as url, aiohttp.ClientSession() as session:
        assert (await session.get(f"{url}/fails")).status == 500
        assert (await session.get(url)).status == 200
    assert [record.getMessage() for record in caplog.records if record.exc_info] == ["GET /fails failed"]


class Source:
    """Frames without end; knows when it was closed."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def frames(self) -> AsyncIterator[bytes]:
        try:
            yield b"first\n"
            await asyncio.Event().wait()
        finally:
            self.closed.set()


async def test_an_idle_connection_is_closed_before_and_after_a_request_but_not_during_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_IDLE", 0.01)
    served = asyncio.Event()

    async def handle(_: Request) -> Answer:
        await served.wait()
        return Answer(body=b"served")

    async with Running(handle) as url, asyncio.timeout(10):
        port = int(url.rpartition(":")[2])
        busy, to_busy = await asyncio.open_connection("127.0.0.1", port)
        to_busy.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        idle, to_idle = await asyncio.open_connection("127.0.0.1", port)
        assert await idle.read() == b""
        served.set()
        assert (await busy.read()).endswith(b"served")
        to_busy.close()
        to_idle.close()


async def test_a_stream_whose_client_goes_is_closed() -> None:
    source = Source()

    async def handle(_: Request) -> StreamingResponse:
        return StreamingResponse(source.frames())

    async with Running(handle) as url, aiohttp.ClientSession() as session:
        async with session.get(url) as answer:
            assert await answer.content.readline() == b"first\n"
        await asyncio.wait_for(source.closed.wait(), 5)


async def test_a_stream_of_an_ending_listener_ends_properly() -> None:
    source = Source()

    async def handle(_: Request) -> StreamingResponse:
        return StreamingResponse(source.frames())

    running = Running(handle)
    async with running as url, aiohttp.ClientSession() as session, session.get(url) as answer:
        assert await answer.content.readline() == b"first\n"
        closing = asyncio.create_task(running.listener.close())
        assert await answer.content.read() == b""
        await closing
    assert source.closed.is_set()


async def test_the_error_of_a_taken_address_has_a_hint() -> None:
    async def handle(_: Request) -> Answer:
        return Answer()

    running = Running(handle)
    async with running:
        port = running.listener.port
        with pytest.raises(ConfigError, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*; choose another port, or 0 for any that is free"):
            await Listener(handle, None, port=port).bind()
