"""A peer that vanished without a word is found by the kernel, as soon as client-go finds it. Behaviour K154."""

from __future__ import annotations

import socket

import pytest

from kubeloop.transport import Transport
from kubeloop.transport.connection import Connections
from tests.faults import FaultServer, Reply

#: Seconds: client-go's HTTP/2 health check reads idle for 30 s, then waits 15 s for an answer.
FOUND_WITHIN = 45


@pytest.mark.parametrize("tls", [True, False])
async def test_a_broken_connection_is_found_within_45_seconds_whether_it_is_idle_or_written_to_K154(tls: bool) -> None:
    async with FaultServer(Reply(), tls=tls) as server, Transport(server.config()) as transport:
        await transport.request("GET", "/x")
        pool = transport._sender
        assert isinstance(pool, Connections)
        (wire,) = pool._all
        assert wire.transport is not None
        made = wire.transport.get_extra_info("socket")
        idle, between, times, unacknowledged = (
            made.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        )
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        # Idle: probes begin after KEEPIDLE. Written to: what is not acknowledged for so long ends it.
        assert idle + between * times <= FOUND_WITHIN
        assert unacknowledged <= FOUND_WITHIN * 1000
