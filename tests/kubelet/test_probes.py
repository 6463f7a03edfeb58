"""Probes: what each kind finds, in kubelet's words, and when a result counts."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kubeloop.kubelet.probes import ProbeCounter, ProbeFailure, ProbeTarget, execute, probe_repeatedly
from kubeloop.timing import FakeClock, SystemClock

ANSWERS = {
    "/ok": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "/broken": b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
    "/moved": b"HTTP/1.1 302 Found\r\nLocation: /broken\r\nContent-Length: 0\r\n\r\n",
    "/elsewhere": b"HTTP/1.1 302 Found\r\nLocation: http://example.com/\r\nContent-Length: 0\r\n\r\n",
}


@asynccontextmanager
async def serving(answer: Any) -> AsyncIterator[int]:
    """A server on 127.0.0.1 that calls ``answer(reader, writer)``; its port."""
    connections: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.ensure_future(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*connections)
        await asyncio.sleep(0.01)  # closes the transports of both sides


async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    if "kube-probe/" in head:
        writer.write(ANSWERS[head.split()[1]])
        await writer.drain()


def target(port: int = 1, code: int = 0) -> ProbeTarget:
    async def run(command: list[str]) -> tuple[int, str]:
        return code, f"ran {command[0]}"

    return ProbeTarget("127.0.0.1", {"http": port}, run, SystemClock())


async def failure(action: dict[str, Any], target: ProbeTarget, timeout: float = 5.0) -> str:
    """Return the output of a probe that fails, or an empty text."""
    try:
        await execute(action, target, timeout)
    except ProbeFailure as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/ok", "", id="200 is a success"),
        pytest.param("/broken", "HTTP probe failed with statuscode: 500", id="500 is a failure"),
        pytest.param("/moved", "HTTP probe failed with statuscode: 500", id="a redirect on the host is followed"),
        pytest.param("/elsewhere", "", id="a redirect to another host is a success"),
    ],
)
async def test_an_http_probe(path: str, expected: str) -> None:
    async with serving(http) as port:
        assert await failure({"httpGet": {"path": path, "port": "http"}}, target(port)) == expected


async def test_a_probe_of_a_closed_port_says_what_was_dialled() -> None:
    async with serving(http) as port:
        pass
    address = f"127.0.0.1:{port}"
    assert await failure({"tcpSocket": {"port": port}}, target()) == f"dial tcp {address}: connect: connection refused"
    expected = f'Get "http://{address}/": dial tcp {address}: connect: connection refused'
    assert await failure({"httpGet": {"port": port}}, target()) == expected


async def test_a_port_without_its_name_is_a_failure() -> None:
    assert await failure({"httpGet": {"port": "metrics"}}, target()) == 'couldn\'t find port: "metrics"'


async def test_a_probe_that_takes_too_long_fails() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(silent) as port:
        text = await failure({"httpGet": {"path": "/ok", "port": port}}, target(), 0.02)
    assert text == f'Get "http://127.0.0.1:{port}/ok": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'


@pytest.mark.parametrize(("code", "expected"), [(0, ""), (1, "ran check")])
async def test_an_exec_probe_fails_with_the_output_of_its_command(code: int, expected: str) -> None:
    assert await failure({"exec": {"command": ["check"]}}, target(code=code)) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(b"\x08\x01", "", id="SERVING is a success"),
        pytest.param(b"\x08\x02", 'service unhealthy (responded with "NOT_SERVING")', id="NOT_SERVING is a failure"),
        pytest.param(None, "this server does not implement the grpc health protocol (grpc.health.v1.Health)", id="no message"),
    ],
)
async def test_a_grpc_probe(message: bytes | None, expected: str) -> None:
    asked = []

    def frame(kind: int, flags: int, payload: bytes) -> bytes:
        return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + (0 if kind == 4 else 1).to_bytes(4, "big") + payload

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(24)
        while True:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] == 0:
                asked.append(payload)
                break
        writer.write(frame(4, 0, b"") + frame(1, 4, b"\x88"))
        if message is not None:
            writer.write(frame(0, 0, b"\0" + struct.pack(">I", len(message)) + message))
        writer.write(frame(1, 5, b""))
        await reader.read()

    async with serving(serve) as port:
        assert await failure({"grpc": {"port": port, "service": "shop"}}, target()) == expected
    assert asked == [b"\0\0\0\0\x06\x0a\x04shop"]


def test_a_result_counts_at_its_threshold_and_a_change_starts_again() -> None:
    counter = ProbeCounter(success_threshold=1, failure_threshold=3)
    assert [counter.add(one) for one in (False, False, True, False, False, False, True)] == [False, False, True, False, False, True, True]


async def test_a_probe_waits_for_its_delay_and_period() -> None:
    clock, moments = FakeClock(), []

    async def run(_: list[str]) -> tuple[int, str]:
        moments.append(clock.now())
        return 1, "no"

    failures: list[str] = []
    probe = {"exec": {"command": ["x"]}, "initialDelaySeconds": 5, "periodSeconds": 3, "failureThreshold": 2}
    start = clock.now()
    work = asyncio.create_task(probe_repeatedly(probe, ProbeTarget("", {}, run, clock), lambda _: False, failures.append))
    for _ in range(12):
        await clock.advance(1)
    await work
    assert [moment - start for moment in moments] == [5, 8]
    assert failures == ["no", "no"]
