"""A SPDY connection for the duration of a block: a task reads it, pings keep it alive, and the block's end closes it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubeloop.client.streams.errors import StreamError
from kubeloop.meta.errors import KubeloopError, TransportError
from kubeloop.serving.answer import Duplex
from kubeloop.serving.spdy import SpdyConnection, SpdyError
from kubeloop.tasks import end_tasks
from kubeloop.timing import Clock

_LOG = logging.getLogger("kubeloop.client.streams")

# The period that kubectl uses for port-forward. Pings keep proxies in between from closing an idle connection.
PING_PERIOD = 10.0
#: Maximum seconds until the peer accepts a stream (apimachinery pkg/util/remotecommand: DefaultStreamCreationTimeout).
OPEN_TIME = 30.0


class SpdySession:
    """A running connection, and the error with which it ended."""

    def __init__(self, connection: SpdyConnection, description: str, clock: Clock) -> None:
        self.clock = clock
        self.connection = connection
        self.over = asyncio.Event()
        self.fault: KubeloopError | None = None
        self._where = description

    async def run(self) -> None:
        try:
            await self.connection.run()
            self.fault = TransportError(f"{self._where}: the server ended the connection")
        except SpdyError as error:
            self.fault = StreamError(f"{self._where}: the server broke the SPDY protocol: {error}")
        except KubeloopError as error:
            self.fault = TransportError(f"{self._where}: the connection broke: {error}")
        except OSError as error:
            self.fault = TransportError(f"{self._where}: the connection broke: {error}")
        finally:
            self.over.set()


@asynccontextmanager
async def run_spdy(duplex: Duplex, clock: Clock, description: str) -> AsyncIterator[SpdyConnection]:
    """Run a client's SPDY connection as ``watch_spdy`` does, for callers that learn from their streams that it has ended."""
    async with watch_spdy(duplex, clock, description) as running:
        yield running.connection


@asynccontextmanager
async def watch_spdy(duplex: Duplex, clock: Clock, description: str) -> AsyncIterator[SpdySession]:
    """Run a client's SPDY connection over ``duplex``. The block's end notifies the peer and resets open streams."""
    running = SpdySession(SpdyConnection(duplex, client=True), description, clock)
    tasks = [asyncio.ensure_future(running.run()), asyncio.ensure_future(_pings(running.connection, clock))]
    try:
        yield running
    finally:
        with contextlib.suppress(KubeloopError, OSError, TimeoutError):
            async with asyncio.timeout(0):  # a goodbye that the socket does not take at once is not worth waiting for
                await running.connection.close()
        await end_tasks(*tasks, logger=_LOG)


async def _pings(connection: SpdyConnection, clock: Clock) -> None:
    number = 1
    with contextlib.suppress(KubeloopError, OSError):
        while True:
            await clock.sleep(PING_PERIOD)
            await connection.ping(number)
            number += 2
