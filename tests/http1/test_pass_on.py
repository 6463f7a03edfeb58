"""A body that is passed on as it arrives: nothing is lost, doubled or overtaken, however slowly it is taken."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.http1.client_connection import READ_BUFFER, ClientConnection
from kubeloop.http1.errors import ConnectionEnded, ProtocolError
from tests.pipe import Pipe


class Taker:
    """Takes bytes while it is ``open``; ``ready`` waits until it is."""

    def __init__(self) -> None:
        self.taken = b""
        self.calls = 0
        self.open = True
        self._opened = asyncio.Event()

    def take(self, data: bytes) -> bool:
        self.calls += 1
        if self.open:
            self.taken += data
        return self.open

    async def ready(self) -> None:
        while not self.open:
            self._opened.clear()
            await self._opened.wait()

    def turn(self) -> None:
        """Open it, or close it."""
        self.open = not self.open
        if self.open:
            self._opened.set()


async def begun(head: bytes) -> tuple[ClientConnection, Pipe]:
    """Return a connection on which the head of a response has arrived."""
    wire, pipe = ClientConnection(), Pipe()
    wire.connection_made(pipe)
    exchange = asyncio.create_task(wire.exchange("GET", b"GET / HTTP/1.1\r\n\r\n", None))
    await asyncio.sleep(0)
    wire.data_received(head)
    await exchange
    return wire, pipe


def chunked(part: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(part), part)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

STEPS = st.lists(st.one_of(st.binary(min_size=1, max_size=9), st.sampled_from(["turn of the loop", "close or open"])), max_size=30)


@given(STEPS, st.integers(0, 3))
async def test_bytes_arrive_once_and_in_order_in_any_interleaving(steps: list[bytes | str], before: int) -> None:
    wire, _ = await begun(CHUNKED)
    taker = Taker()
    sent = [step for step in steps if isinstance(step, bytes)]
    for part in sent[:before]:
        wire.data_received(chunked(part))  # before the body is passed on
    passing = asyncio.create_task(wire.pass_on(taker.take, taker.ready))
    rest = iter(sent[before:])
    for step in steps:
        if step == "close or open":
            taker.turn()
        elif step == "turn of the loop":
            await asyncio.sleep(0)
        elif (arriving := next(rest, None)) is not None:
            wire.data_received(chunked(arriving))
        assert b"".join(sent).startswith(taker.taken)
    for part in rest:
        wire.data_received(chunked(part))
    wire.data_received(b"0\r\n\r\n")
    if not taker.open:
        taker.turn()
    await passing
    assert taker.taken == b"".join(sent)
    assert wire.reusable


async def test_a_part_is_taken_in_the_turn_in_which_it_arrives() -> None:
    wire, _ = await begun(CHUNKED)
    taker = Taker()
    passing = asyncio.create_task(wire.pass_on(taker.take, taker.ready))
    await asyncio.sleep(0)
    wire.data_received(chunked(b"event"))
    assert taker.taken == b"event"
    passing.cancel()


async def test_a_peer_waits_while_nothing_is_taken() -> None:
    wire, pipe = await begun(CHUNKED)
    taker = Taker()
    taker.turn()
    passing = asyncio.create_task(wire.pass_on(taker.take, taker.ready))
    await asyncio.sleep(0)
    wire.data_received(chunked(bytes(READ_BUFFER + 1)))
    assert (pipe.reading, taker.taken) == (False, b"")
    taker.turn()
    for _ in range(3):
        await asyncio.sleep(0)
    assert (pipe.reading, len(taker.taken)) == (True, READ_BUFFER + 1)
    passing.cancel()


async def test_bytes_before_a_fault_are_taken() -> None:
    wire, _ = await begun(CHUNKED)
    taker = Taker()
    passing = asyncio.create_task(wire.pass_on(taker.take, taker.ready))
    await asyncio.sleep(0)
    wire.data_received(chunked(b"good") + b"no size\r\n")
    with pytest.raises(ProtocolError):
        await passing
    assert taker.taken == b"good"


async def test_the_end_of_the_connection_ends_it() -> None:
    wire, _ = await begun(CHUNKED)
    taker = Taker()
    passing = asyncio.create_task(wire.pass_on(taker.take, taker.ready))
    await asyncio.sleep(0)
    wire.connection_lost(None)
    with pytest.raises(ConnectionEnded):
        await passing


async def test_a_fault_of_the_taker_is_raised_and_nothing_more_is_given_to_it() -> None:
    wire, _ = await begun(CHUNKED)

    async def gone() -> None:
        raise ConnectionResetError

    calls: list[bytes] = []

    def take(data: bytes) -> bool:
        calls.append(data)
        return False

    passing = asyncio.create_task(wire.pass_on(take, gone))
    await asyncio.sleep(0)
    wire.data_received(chunked(b"a"))
    with pytest.raises(ConnectionResetError):
        await passing
    count = len(calls)
    wire.data_received(chunked(b"b"))
    assert len(calls) == count
