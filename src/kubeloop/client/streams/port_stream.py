"""One connection to a port of a pod: a stream of data and one of errors within a SPDY connection.

Source: k8s.io/kubelet pkg/cri/streaming/portforward (httpstream.go), client-go tools/portforward.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging

from kubeloop.client.streams.errors import ForwardingError
from kubeloop.client.streams.spdy_wire import OPEN_TIME, Running
from kubeloop.meta.errors import KubeloopError, TransportError
from kubeloop.serving.spdy import ConnectionOver, Stream, StreamReset
from kubeloop.tasks import end_tasks
from kubeloop.timing import TimeLimit

_logger = logging.getLogger("kubeloop.client.streams")

#: Bytes of an error that are kept.
_ERROR = 4096
#: Seconds in which a node that has ended the data says whether that was an error.
_LAST_WORDS = 1.0


class PortStream:
    """Bytes both ways. Read by one task, written by one."""

    def __init__(self, running: Running, data: Stream, errors: Stream, where: str) -> None:
        self.where = where
        self._running = running
        self._data = data
        self._errors = errors
        self._said = b""
        self._given_up = False
        self._listening = asyncio.ensure_future(self._listen())

    async def read(self) -> bytes:
        """The next piece; empty when the pod's side has ended, or after ``give_up``.

        Raises:
            ForwardingError: the pod's node could not connect, or lost the connection. TransportError: this side's connection broke.
        """
        try:
            data = await self._data.read()
        except StreamReset as error:
            if self._given_up:
                return b""
            raise self._fault() from error
        if not data:
            await asyncio.sleep(0)  # what came on the other stream before this end may not have been read yet
            if self._said:
                raise self._fault()
        return data

    async def write(self, data: bytes) -> None:
        """Returns when more may be sent. Raises as ``read``."""
        try:
            await self._data.write(data)
        except (StreamReset, OSError, KubeloopError) as error:
            raise self._fault() from error

    async def write_eof(self) -> None:
        """This side's end; the pod's may go on."""
        with contextlib.suppress(StreamReset, OSError, KubeloopError):
            await self._data.close()

    def give_up(self) -> None:
        """Neither side hears the other any more; a reader that waits is let go."""
        self._given_up = True
        self._running.connection.give_up(self._data, self._errors)

    async def finish(self) -> None:
        """After the pod's end: give up what is still being sent, and hear whether the end was one.

        Raises:
            ForwardingError: it was not.
        """
        with contextlib.suppress(OSError, KubeloopError):
            await self._data.reset()
        await asyncio.wait((self._listening,), timeout=_LAST_WORDS)
        if self._said:
            raise self._fault()

    async def close(self) -> None:
        """Give up what is left, at once."""
        self._listening.cancel()
        self.give_up()
        await end_tasks(self._listening, logger=_logger)

    def _fault(self) -> KubeloopError:
        if self._said:
            return ForwardingError(f"{self.where}: {' '.join(self._said.decode('utf-8', 'replace').split())}")
        return self._running.fault or TransportError(f"{self.where}: the pod's node broke the connection off")

    async def _listen(self) -> None:
        with contextlib.suppress(StreamReset):
            while data := await self._errors.read():
                self._said = (self._said + data)[:_ERROR]


async def open_port(running: Running, numbers: itertools.count[int], port: int, where: str) -> PortStream:
    """A new connection to ``port``. That the port is closed is told by the first read.

    Raises:
        ForwardingError: the pod's node takes no more connections. TransportError: the connection to it is over.
    """
    # The error stream comes first: it says what is wrong with the data stream.
    names = {"port": str(port), "requestid": str(next(numbers))}
    errors: Stream | None = None
    try:
        async with TimeLimit(running.clock, OPEN_TIME):
            errors = await running.connection.open({"streamtype": "error", **names})
            await errors.close()
            data = await running.connection.open({"streamtype": "data", **names})
    except BaseException as error:
        if errors is not None:
            running.connection.give_up(errors)
        if isinstance(error, TimeoutError):
            raise TransportError(f"{where}: the pod's node did not take the connection within {OPEN_TIME:g} s") from error
        if isinstance(error, StreamReset) and not isinstance(error, ConnectionOver) and running.fault is None:
            raise ForwardingError(f"{where}: the pod's node does not take the connection; are too many open?") from error
        if isinstance(error, OSError | KubeloopError):
            raise running.fault or TransportError(f"{where}: the connection ended while a stream was opened ({error})") from error
        raise
    return PortStream(running, data, errors, where)
