"""A peer that vanished without a word is found by the kernel, as soon as client-go finds it. Behaviour K154."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from kubeloop.transport import Transport
from kubeloop.transport.connection import Connections
from tests.docs.pages import ROOT
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
        # Idle: probes begin after KEEPIDLE. Written to: data that is unacknowledged for so long ends it.
        assert (idle, idle + between * times, unacknowledged) == (30, FOUND_WITHIN, FOUND_WITHIN * 1000)


@pytest.mark.network_namespace
def test_a_connection_that_breaks_silently_is_found_by_the_kernel_and_a_new_one_serves_the_request_K154() -> None:
    """In separate network namespaces, with the real kernel and figures of 3 s instead of 45: see the module that it runs."""
    command = ["unshare", "--map-root-user", "--net", sys.executable, "-m", "tests.transport.severed", "3"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert (ended.returncode, ended.stdout.split()) == (0, ["idle:", "found", "written:", "found"]), ended.stderr
