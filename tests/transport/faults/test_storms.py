"""Servers that fail for a while, connections that died meanwhile, clocks that differ: what a caller gets in the end."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.meta import ApiError, ServiceUnavailable
from kubeloop.timing import FakeClock
from kubeloop.transport import Response, Transport
from tests.faults import DROP, FaultServer, Received, Reply, status


async def waited_out(clock: FakeClock, transport: Transport, step: float) -> asyncio.Task[Response]:
    """A request that is over, the clock having ended each of its pauses."""
    call = asyncio.create_task(transport.request("GET", "/x"))
    while not call.done():
        await asyncio.sleep(0.001)
        if clock.waiting:
            await clock.advance(step)
    return call


async def test_a_storm_of_5xx_is_waited_out_as_long_as_the_server_says_and_no_longer() -> None:
    clock = FakeClock()
    started = clock.now()
    stormy = [Reply(code, headers={"Retry-After": "5"}) for code in (500, 502, 503, 504, 429)]

    async with FaultServer(*stormy, *stormy, Reply(body=b"calm")) as server, Transport(server.config(), clock=clock) as transport:
        call = await waited_out(clock, transport, 5)
        assert (await call).body == b"calm"
    assert clock.now() - started == 50
    async with FaultServer(stormy[0]) as server, Transport(server.config(), clock=clock) as transport:
        call = await waited_out(clock, transport, 5)
        with pytest.raises(ApiError, match="tried 11 times"):
            await call


async def test_many_callers_in_a_storm_are_served_when_it_is_over() -> None:
    clock, seen = FakeClock(), 0

    def answer(received: Received) -> Reply:
        nonlocal seen
        seen += 1
        return Reply(429, headers={"Retry-After": "1"}) if seen <= 100 else Reply(body=received.path.encode())

    async with FaultServer(answer=answer) as server, Transport(server.config(), clock=clock) as transport:
        calls = [asyncio.create_task(transport.request("GET", f"/{number}")) for number in range(60)]
        while not all(call.done() for call in calls):
            await asyncio.sleep(0.001)
            await clock.advance(1)
        assert [(await call).body for call in calls] == [f"/{number}".encode() for number in range(60)]


async def test_an_error_keeps_the_servers_message_its_causes_and_what_was_asked() -> None:
    details = {"name": "web", "kind": "pods", "causes": [{"reason": "FieldValueInvalid", "message": "too many", "field": "spec.replicas"}]}
    async with (
        FaultServer(status(422, "Invalid", "the pod is invalid", details=details)) as server,
        Transport(server.config()) as transport,
    ):
        with pytest.raises(ApiError) as raised:
            await transport.request("POST", "/api/v1/namespaces/shop/pods", body=b"{}")
    assert str(raised.value) == 'Invalid: the pod is invalid (create pods in namespace "shop")'
    assert [(one.field, one.message) for one in raised.value.causes] == [("spec.replicas", "too many")]
    assert raised.value.request == 'create pods in namespace "shop"'


async def test_a_connection_that_died_while_idle_is_not_used_for_a_write() -> None:
    async with FaultServer(Reply(body=b"1", end="leave"), Reply(body=b"2")) as server, Transport(server.config()) as transport:
        await transport.request("GET", "/x")
        assert (await transport.request("POST", "/x", body=b"{}")).body == b"2"
        assert [one.method for one in server.received] == ["GET", "POST"]


async def test_a_server_whose_clock_is_years_away_is_read_all_the_same() -> None:
    dates = {"Date": "Thu, 01 Jan 1970 00:00:00 GMT", "Expires": "Thu, 01 Jan 1970 00:00:00 GMT", "Age": "999999999"}
    clock = FakeClock()
    async with FaultServer(Reply(body=b"ok", headers=dates)) as server, Transport(server.config(), clock=clock) as transport:
        for step in (0, -1e9, 2e9):
            clock.step_wall(step)
            assert (await transport.request("GET", "/x")).body == b"ok"
        assert server.connections == 1


async def test_refusals_and_broken_connections_in_turn_end_in_one_error_that_tells_of_both() -> None:
    clock = FakeClock()
    script = [DROP, Reply(503, headers={"Retry-After": "1"}), DROP, Reply(503)]
    async with FaultServer(*script) as server, Transport(server.config(), clock=clock) as transport:
        call = await waited_out(clock, transport, 1)
        with pytest.raises(ServiceUnavailable, match=r"tried 4 times; error from a previous attempt: .*the connection ended"):
            await call
