"""Opens a TCP connection to whichever address of a host answers first (RFC 8305, "Happy Eyeballs").

asyncio's own race (``create_connection(happy_eyeballs_delay=...)``) loses a socket that was just connected when it is cancelled; here
every socket that is not returned is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable

from kubeloop.http1.progress import RESOLVED, reach
from kubeloop.timing import Clock, SystemClock, TimeLimit

#: Seconds after which the next address is tried beside the ones before (RFC 8305, section 5).
HEAD_START = 0.25
_Address = tuple[int, tuple[object, ...]]


async def connect(host: str, port: int, resolved: Callable[[float], None] | None = None, clock: Clock | None = None) -> socket.socket:
    """A connected socket, not blocking. ``resolved`` is told how many seconds it took to look a name up.

    Raises:
        OSError: no address could be reached; if they failed in different ways, the text has all of them. socket.gaierror: no address.
    """
    addresses = _numeric(host, port) or await _looked_up(host, port, resolved, clock or SystemClock())
    reach(RESOLVED)
    if len(addresses) == 1:
        return await _connect(addresses[0])
    attempts: list[asyncio.Task[socket.socket]] = []
    winner: socket.socket | None = None
    try:
        for address in addresses:
            attempts.append(asyncio.ensure_future(_connect(address)))
            last = len(attempts) == len(addresses)
            winner = await _first(attempts, None if last else HEAD_START, clock or SystemClock())
            if winner is not None:
                return winner
        raise _all_failed([error for attempt in attempts if isinstance(error := attempt.exception(), OSError)])
    finally:
        for attempt in attempts:
            attempt.add_done_callback(lambda ended: _drop(ended, winner))
            attempt.cancel()


def _numeric(host: str, port: int) -> list[_Address]:
    """An address needs no thread to look it up, nor the tables of international names. Empty for a name."""
    with contextlib.suppress(socket.gaierror, UnicodeEncodeError):
        found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        return [(family, address) for family, _, _, _, address in found]
    return []


async def _looked_up(host: str, port: int, resolved: Callable[[float], None] | None, clock: Clock) -> list[_Address]:
    started = clock.now()
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if resolved is not None:
        resolved(clock.now() - started)
    return _alternating([(family, address) for family, _, _, _, address in found])


async def _first(attempts: list[asyncio.Task[socket.socket]], seconds: float | None, clock: Clock) -> socket.socket | None:
    """The socket of an attempt that succeeded; None if all have failed, or ``seconds`` are over."""
    running = {attempt for attempt in attempts if not attempt.done()}
    with contextlib.suppress(TimeoutError):  # the limit's: ``wait`` raises none
        async with TimeLimit(clock, seconds):
            while running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for attempt in done:
                    if attempt.exception() is None:
                        return attempt.result()
    return None


async def _connect(address: _Address) -> socket.socket:
    family, where = address
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        await asyncio.get_running_loop().sock_connect(made, where)
    except BaseException:
        made.close()
        raise
    return made


def _drop(attempt: asyncio.Task[socket.socket], winner: socket.socket | None) -> None:
    if not attempt.cancelled() and attempt.exception() is None and attempt.result() is not winner:
        attempt.result().close()


def _alternating(addresses: list[_Address]) -> list[_Address]:
    """Families in turn, that of the first address first."""
    families: dict[int, list[_Address]] = {}
    for address in addresses:
        families.setdefault(address[0], []).append(address)
    return [address for group in itertools.zip_longest(*families.values()) for address in group if address is not None]


def _all_failed(errors: list[OSError]) -> OSError:
    texts = dict.fromkeys(map(str, errors))
    return errors[0] if len(texts) == 1 else OSError(f"Multiple exceptions: {', '.join(texts)}")
