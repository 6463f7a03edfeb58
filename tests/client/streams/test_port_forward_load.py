"""Many connections through one port-forward, given up in every way: what ends on one side ends on the other, and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubeloop.client import Client
from kubeloop.client.streams import ForwardingError, PortForward
from kubeloop.client.streams.targets import parse_port
from tests.client.streams.conftest import Cluster

CONNECTIONS = 200


class Program:
    """The listener in the pod: it answers in upper case, and counts its connections."""

    def __init__(self) -> None:
        self.port = 0
        self.open = 0
        self.changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._count(1)
        try:
            while data := await reader.read(1 << 16):
                writer.write(data.upper())
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            self._count(-1)

    async def wait_for_events(self, count: int) -> None:
        async with asyncio.timeout(30):
            while self.open != count:
                self.changed.clear()
                await self.changed.wait()

    def _count(self, change: int) -> None:
        self.open += change
        self.changed.set()

    async def end(self) -> None:
        async with asyncio.timeout(30):
            await asyncio.gather(*self._tasks)


@asynccontextmanager
async def program() -> AsyncIterator[Program]:
    made = Program()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, backlog=CONNECTIONS)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.end()
        await server.wait_closed()


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _one(forward: PortForward, port: int, chance: random.Random, number: int) -> None:
    """A connection that is used to its end, or given up in the middle."""
    data = bytes((97 + number % 26,)) * chance.randrange(1, 60_000)
    inside = number % 3 == 0
    reader, writer = await (forward.connect(port) if inside else asyncio.open_connection("127.0.0.1", forward.local(port)))
    if number % 5 < 2:
        writer.write(data)
        for _ in range(chance.randrange(20)):
            await asyncio.sleep(0)
        if inside:
            writer.transport.abort()
        else:
            _reset(writer) if number % 2 else writer.close()
        return

    async def send() -> None:
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    sending = asyncio.ensure_future(send())
    got = await reader.read()
    await sending
    writer.close()
    assert got == data.upper()


@pytest.mark.server
async def test_200_connections_at_once_some_given_up_bring_their_own_data_and_leave_nothing(
    client: Client, cluster: Cluster, one_node: str
) -> None:
    await cluster.pod("web", one_node)
    chance = random.Random(1)
    async with program() as inside, client.pods.port_forward("web", f":{inside.port}") as forward:
        async with asyncio.timeout(50), asyncio.TaskGroup() as group:
            for number in range(CONNECTIONS):
                group.create_task(_one(forward, inside.port, chance, number))
        await inside.wait_for_events(0)
        async with asyncio.timeout(30):
            while forward._running.connection._streams:
                await asyncio.sleep(0.01)
        assert forward.last_error is None


@pytest.mark.server
async def test_a_local_side_that_breaks_off_ends_the_connection_in_the_pod_though_that_is_silent(
    client: Client, cluster: Cluster, one_node: str
) -> None:
    await cluster.pod("web", one_node)
    async with program() as inside, client.pods.port_forward("web", f":{inside.port}") as forward:
        _, writer = await asyncio.open_connection("127.0.0.1", forward.local(inside.port))
        await inside.wait_for_events(1)
        _reset(writer)
        await inside.wait_for_events(0)
        assert forward.last_error is None


@pytest.mark.server
async def test_a_connection_that_is_cancelled_while_it_opens_is_given_up_in_the_pod_too(
    client: Client, cluster: Cluster, one_node: str
) -> None:
    await cluster.pod("web", one_node)
    async with program() as inside, client.pods.port_forward("web") as forward:
        streams = forward._running.connection._streams
        for opened, turns in itertools.product((0, 1, 2), range(4)):
            opening = asyncio.ensure_future(forward.connect(inside.port))
            async with asyncio.timeout(30):
                while len(streams) < opened:
                    await asyncio.sleep(0)
                for _ in range(turns):
                    await asyncio.sleep(0)
                opening.cancel()
                await asyncio.wait((opening,))
                if not opening.cancelled():  # it was faster
                    opening.result()[1].transport.abort()
                while streams:
                    await asyncio.sleep(0)
        reader, writer = await forward.connect(inside.port)
        writer.write(b"x")
        assert await reader.read(1) == b"X"
        await inside.wait_for_events(1)
        writer.close()
        await inside.wait_for_events(0)


async def test_a_node_that_takes_no_more_connections_is_named_and_the_others_go_on(
    client: Client, cluster: Cluster, one_node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.pod("web", one_node)
    monkeypatch.setattr("kubeloop.serving.spdy.connection._STREAMS", 3)
    async with program() as inside, client.pods.port_forward("web") as forward:
        reader, writer = await forward.connect(inside.port)
        for _ in range(3):  # half of one is given up again, or the first would be the last
            with pytest.raises(ForwardingError, match=r"port \d+ of pod \"web\".*does not accept the connection; are too many open\?"):
                await forward.connect(inside.port)
        writer.write(b"abc")
        writer.write_eof()
        assert await reader.read() == b"ABC"
        writer.close()


async def test_a_local_port_is_free_again_whenever_its_opening_is_cancelled(client: Client, cluster: Cluster, one_node: str) -> None:
    await cluster.pod("web", one_node)
    async with client.pods.port_forward("web") as forward:
        for turns in range(6):
            opening = asyncio.ensure_future(forward.listen([parse_port(":80")], "127.0.0.1"))
            for _ in range(turns):
                await asyncio.sleep(0)
            opening.cancel()
            await asyncio.wait((opening,))
    gc.collect()  # a socket that was left open would be an error here
    assert not [server for server in forward._servers if server.sockets]


async def test_who_connects_while_a_forward_ends_is_not_left_hanging(client: Client, cluster: Cluster, one_node: str) -> None:
    await cluster.pod("web", one_node)
    async with program() as inside:
        for turns in range(6):
            async with client.pods.port_forward("web", f":{inside.port}") as forward:
                reader, writer = await asyncio.open_connection("127.0.0.1", forward.local(inside.port))
                for _ in range(turns):
                    await asyncio.sleep(0)
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(30):
                    assert await reader.read() == b""
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        gc.collect()
