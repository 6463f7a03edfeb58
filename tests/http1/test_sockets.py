"""The race between the addresses of a host: the winner, the error when all fail, and that no socket is lost."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from kubeloop.http1 import sockets
from kubeloop.http1.sockets import connect


@contextlib.contextmanager
def listening(address: str = "127.0.0.1", backlog: int = 16) -> Iterator[int]:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as server:
        server.bind((address, 0))
        server.listen(backlog)
        yield server.getsockname()[1]


def resolve(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> None:
    """Have every name mean these addresses."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    async def getaddrinfo(*_: object, **__: object) -> list[Any]:
        return found

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


def refused() -> tuple[str, int]:
    """An address where nothing listens."""
    with listening() as port:
        return "127.0.0.1", port


def hang(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Have connections to a port neither succeed nor fail, as behind a firewall that drops packets."""
    loop = asyncio.get_running_loop()
    real = loop.sock_connect

    async def sock_connect(made: socket.socket, address: Any) -> None:
        if address[1] == port:
            await asyncio.Event().wait()
        await real(made, address)

    monkeypatch.setattr(loop, "sock_connect", sock_connect)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_an_address_is_not_looked_up(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    resolve(monkeypatch, refused())
    looked_up: list[float] = []
    with listening(host) as port:
        made = await connect(host, port, looked_up.append)
        assert made.getpeername()[:2] == (host, port)
        made.close()
    assert looked_up == []


async def test_an_address_that_refuses_is_followed_by_the_next_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as port:
        resolve(monkeypatch, refused(), ("127.0.0.1", port))
        async with asyncio.timeout(sockets.HEAD_START):
            (await connect("host", port)).close()


async def test_an_address_that_does_not_answer_is_overtaken_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "HEAD_START", 0.01)
    with listening() as dead, listening() as port:
        resolve(monkeypatch, ("127.0.0.1", dead), ("127.0.0.1", port))
        hang(monkeypatch, dead)
        made = await connect("host", port)
        assert made.getpeername()[1] == port
        made.close()
        await asyncio.sleep(0)


async def test_when_no_address_answers_every_reason_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = refused(), refused()
    resolve(monkeypatch, one, other)
    with pytest.raises(OSError, match=rf"\[Errno 111\].*{one[1]}.*\[Errno 111\].*{other[1]}"):
        await connect("host", 1)
    resolve(monkeypatch, one)
    with pytest.raises(ConnectionRefusedError):
        await connect("host", 1)


@pytest.mark.parametrize("addresses", [1, 2, 3])
async def test_a_cancellation_at_any_moment_loses_no_socket(monkeypatch: pytest.MonkeyPatch, addresses: int) -> None:
    monkeypatch.setattr(sockets, "HEAD_START", 0)
    with listening(backlog=256) as port:
        resolve(monkeypatch, *[("127.0.0.1", port)] * addresses)
        for turns in range(12):
            attempt = asyncio.ensure_future(connect("host", port))
            for _ in range(turns):
                await asyncio.sleep(0)
            attempt.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await attempt).close()
        for _ in range(5):
            await asyncio.sleep(0)
        gc.collect()  # an unclosed socket warns here, and warnings are errors


def test_families_take_turns() -> None:
    six, four = socket.AF_INET6, socket.AF_INET
    given: list[tuple[int, tuple[object, ...]]] = [(six, ("a",)), (six, ("b",)), (six, ("c",)), (four, ("d",))]
    assert sockets._alternating(given) == [(six, ("a",)), (four, ("d",)), (six, ("b",)), (six, ("c",))]
