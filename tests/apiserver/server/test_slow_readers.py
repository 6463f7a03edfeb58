"""Clients that do not read their response: the server disconnects them and uses bounded memory until then."""

from __future__ import annotations

import asyncio
import socket

import pytest

from kubeloop.apiserver.storage import watch_cache
from kubeloop.http1 import buffered_connection
from kubeloop.serving.answer import Answer
from kubeloop.serving.listener import Listener
from kubeloop.serving.request import Request
from tests.apiserver.conftest import Api


async def test_an_answer_that_is_not_read_is_broken_off(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(buffered_connection, "_STALL", 0.01)
    monkeypatch.setattr(buffered_connection, "_SLOWEST", 1 << 40)
    caplog.set_level("INFO")

    async def handle(_: Request) -> Answer:
        return Answer(body=bytes(64 << 20))

    listener = Listener(handle, None)
    await listener.bind()
    await listener.serve()
    client = socket.create_connection(("127.0.0.1", listener.port))
    try:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(60):
            while "disconnected a client that did not read" not in caplog.text:
                await asyncio.sleep(0.01)
    finally:
        client.close()
        await listener.close()


async def test_a_client_that_reads_slowly_and_steadily_gets_all() -> None:
    async def handle(_: Request) -> Answer:
        return Answer(body=bytes(4 << 20))

    listener = Listener(handle, None)
    await listener.bind()
    await listener.serve()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=4096)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        got = 0
        while piece := await reader.read(16384):
            got += len(piece)
            await asyncio.sleep(0)
        assert got == 4 << 20
    finally:
        writer.close()
        await writer.wait_closed()
        await listener.close()


async def test_changes_that_wait_for_a_watcher_are_bounded_in_bytes(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_cache, "MOST_BYTES", 5000)
    slow = api.server.api.cache.subscribe("/registry/core/configmaps/")
    for number in range(8):
        await api.create(f"n{number}", data={"k": "x" * 1000})
    assert (slow.cut, await slow.receive()) == (True, [])
    slow.close()


async def test_a_watcher_is_given_some_of_what_waits_at_a_time_and_then_the_rest(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_cache, "_BYTES_AT_ONCE", 2000)
    subscription = api.server.api.cache.subscribe("/registry/core/configmaps/")
    for number in range(8):
        await api.create(f"n{number}", data={"k": "x" * 1000})
    parts = []
    while subscription.waiting:
        parts.append(len(await subscription.receive()))
    assert sum(parts) == 8
    assert max(parts) <= 2
    subscription.close()
