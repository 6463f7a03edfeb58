"""``Transport.upgrade``: a separate connection to another protocol, or the server's typed refusal. Over real TLS sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kubeloop.config import Credentials, ImpersonatedUser
from kubeloop.meta import DeadlineError, Forbidden, TooManyRequests, TransportError
from kubeloop.timing import FakeClock, TokenBucket
from kubeloop.transport import NotUpgradedError, Transport
from tests.faults import SILENCE, FaultServer, Reply, status
from tests.faults.server import switched

EXEC = "/api/v1/namespaces/shop/pods/web-0/exec"


async def test_bytes_go_both_ways_and_those_behind_the_head_come_first() -> None:
    async with (
        FaultServer(switched(b"first")) as server,
        Transport(server.config()) as transport,
        transport.upgrade("GET", EXEC, protocol="websocket", query={"command": ["ls", "-l"], "stdin": True}) as connection,
    ):
        assert await connection.read() == b"first"
        await connection.write(b"hello")
        assert await connection.read() == b"HELLO"
        assert connection.headers["Upgrade"] == "echo"
    received = server.received[0]
    assert received.target == f"{EXEC}?command=ls&command=-l&stdin=true"
    assert (received.headers["connection"], received.headers["upgrade"]) == ("Upgrade", "websocket")
    assert (received.headers["authorization"], received.headers["accept-encoding"]) == ("Bearer secret-token", "identity")


async def test_a_post_says_that_it_has_no_body() -> None:
    async with (
        FaultServer(switched()) as server,
        Transport(server.config()) as transport,
        transport.upgrade("POST", EXEC, protocol="SPDY/3.1", headers={"X-Stream-Protocol-Version": "v4"}),
    ):
        pass
    assert (server.received[0].headers["content-length"], server.received[0].headers["x-stream-protocol-version"]) == ("0", "v4")


async def test_the_impersonated_user_is_sent() -> None:
    credentials = Credentials(token="t", impersonate=ImpersonatedUser(user="jane", groups=("devs",)))
    async with (
        FaultServer(switched()) as server,
        Transport(server.config(credentials=credentials)) as transport,
        transport.upgrade("GET", EXEC, protocol="websocket"),
    ):
        pass
    assert server.received[0].headers["impersonate-user"] == "jane"


async def test_the_connection_is_its_own_and_serves_nothing_else() -> None:
    def answer(received: object) -> Reply:
        return switched() if "exec" in str(received) else Reply(body=b"ok")

    async with FaultServer(answer=answer) as server, Transport(server.config()) as transport:
        await transport.request("GET", "/version")
        async with transport.upgrade("GET", EXEC, protocol="websocket"):
            await transport.request("GET", "/version")
            assert server.connections == 2
        await transport.request("GET", "/version")
        assert server.connections == 2


async def test_a_refusal_is_raised_as_what_it_is_and_never_repeated() -> None:
    async with FaultServer(status(403, "Forbidden", "no exec for you")) as server, Transport(server.config()) as transport:
        with pytest.raises(Forbidden, match="no exec for you"):
            async with transport.upgrade("GET", EXEC, protocol="websocket"):
                pytest.fail("the block must not run")
    async with FaultServer(Reply(429, headers={"Retry-After": "1"})) as server, Transport(server.config()) as transport:
        with pytest.raises(TooManyRequests):
            async with transport.upgrade("GET", EXEC, protocol="websocket"):
                pytest.fail("the block must not run")
        assert len(server.received) == 1


async def test_an_answer_without_a_change_has_its_own_error() -> None:
    async with FaultServer(Reply(body=b"plain")) as server, Transport(server.config()) as transport:
        with pytest.raises(NotUpgradedError, match=r"HTTP status 200 where a change to websocket was requested.*\(get pods/exec"):
            async with transport.upgrade("GET", EXEC, protocol="websocket"):
                pytest.fail("the block must not run")


async def test_a_server_that_never_answers_is_left_at_the_deadline(later: Callable[[float], None]) -> None:
    async def change(transport: Transport) -> None:
        async with transport.upgrade("GET", EXEC, protocol="websocket"):
            pytest.fail("the block must not run")

    async with FaultServer(SILENCE) as server, Transport(server.config()) as transport:
        call = asyncio.create_task(change(transport))
        await server.waiting.wait()
        later(60)
        with pytest.raises(DeadlineError, match="no change to websocket within 60 s"):
            await call
        await server.gone.wait()


async def test_no_limiter_holds_it_back() -> None:
    clock = FakeClock()
    async with (
        FaultServer(switched()) as server,
        Transport(server.config(), clock=clock, limiter=TokenBucket(1, 1, clock)) as transport,
        asyncio.timeout(30),
    ):
        for _ in range(3):
            async with transport.upgrade("GET", EXEC, protocol="websocket"):
                pass


async def test_leaving_the_block_ends_the_connection_for_the_server_too() -> None:
    async with FaultServer(switched()) as server, Transport(server.config()) as transport:
        with pytest.raises(KeyError):
            async with transport.upgrade("GET", EXEC, protocol="websocket"):
                raise KeyError("mine")
        async with asyncio.timeout(30):
            await server.gone.wait()
        async with transport.upgrade("GET", EXEC, protocol="websocket") as connection:
            pass
        with pytest.raises(TransportError, match="left before its end"):
            await connection.read()
        with pytest.raises(TransportError, match="was left and is closed"):
            await connection.write(b"x")


async def test_the_end_of_the_peer_is_the_end() -> None:
    async with (
        FaultServer(switched(b"last", stay=False)) as server,
        Transport(server.config()) as transport,
        transport.upgrade("GET", EXEC, protocol="websocket") as connection,
    ):
        assert [await connection.read(), await connection.read()] == [b"last", b""]
        with pytest.raises(TransportError):
            await connection.write(b"x")


@pytest.mark.parametrize("protocol", ["", "web socket", "websocket\r\nX: y"])
async def test_a_text_that_is_no_name_of_a_protocol_is_refused_before_anything_is_sent(protocol: str) -> None:
    async with FaultServer(Reply()) as server, Transport(server.config()) as transport:
        with pytest.raises(ValueError, match="not a valid name of a protocol"):
            async with transport.upgrade("GET", EXEC, protocol=protocol):
                pytest.fail("the block must not run")
        assert not server.received
