"""Runs a program once and gives what it printed: bounded in time and size, and gone when nobody waits for it any longer."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: Bytes. An ExecCredential is a token or two PEM files.
MOST_OUTPUT = 1 << 20
_KEPT_STDERR = 2048
_LAST_WORDS = 2.0


class Ended(NamedTuple):
    """``complaint`` is the end of what it wrote to stderr, without control characters."""

    status: int
    output: bytes
    complaint: str


class TooMuchOutputError(Exception):
    """The program printed more than ``MOST_OUTPUT``."""


async def run(command: str, args: Sequence[str], environment: Mapping[str, str], *, interactive: bool, timeout: float) -> Ended:
    """Start the program and wait for its end. Its stderr is shown as it comes; its stdin is ours if ``interactive``, else empty.

    Raises:
        OSError: it cannot be started. TimeoutError, TooMuchOutputError: it was killed.
    """
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: _Output(loop),
        command,
        *args,
        stdin=None if interactive else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        # A program that asks at the terminal must have it.
        stderr=None if interactive else asyncio.subprocess.PIPE,
        env=dict(environment),
    )
    try:
        async with asyncio.timeout(timeout):
            await protocol.ended
        if transport.get_returncode():
            # What it said last is on its way; who inherited its stderr may hold it open for ever.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS):
                    await protocol.silent
    finally:
        # Kills it if it still runs, and closes the pipes, which a child that it left behind may hold open.
        transport.close()
        await asyncio.shield(protocol.gone)
    if protocol.excess:
        raise TooMuchOutputError
    status = transport.get_returncode()
    return Ended(
        status if status is not None else -1, bytes(protocol.output), _printable(bytes(protocol.complaint).decode("utf-8", "replace"))
    )


class _Output(asyncio.SubprocessProtocol):
    """``ended``: it exited and closed its stdout; ``silent``: its stderr is closed; ``gone``: nothing of it is left here."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ended: asyncio.Future[None] = loop.create_future()
        self.silent: asyncio.Future[None] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self.output = bytearray()
        self.complaint = bytearray()
        self.excess = False
        self._exited = False
        self._closed = False

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self.complaint = (self.complaint + data)[-_KEPT_STDERR:]
            with contextlib.suppress(OSError, ValueError, AttributeError):  # no stderr, or one that is closed
                sys.stderr.write(data.decode("utf-8", "replace"))
                sys.stderr.flush()
            return
        self.output += data
        if len(self.output) > MOST_OUTPUT:
            self.excess = True
            self._end()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        if fd == 2:
            _set(self.silent)
            return
        self._closed = True
        if self._exited:
            self._end()

    def process_exited(self) -> None:
        self._exited = True
        if self._closed:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._end()
        _set(self.silent)
        _set(self.gone)

    def _end(self) -> None:
        _set(self.ended)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text).strip()
