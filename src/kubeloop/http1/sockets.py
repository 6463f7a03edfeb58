"""TCP sockets: connecting to the first address that responds, and stopping to listen without losing accepted connections."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable

from kubeloop.http1.progress import RESOLVED, reach
from kubeloop.timing import Clock, SystemClock, TimeLimit

#: Seconds after which the next address is tried in parallel (RFC 8305, section 5).
HEAD_START = 0.25
_Address = tuple[int, tuple[object, ...]]


async def connect(host: str, port: int, resolved: Callable[[float], None] | None = None, clock: Clock | None = None) -> socket.socket:
    """Return a connected, non-blocking socket.

    Args:
        host: Name or address of the server.
        port: Its port.
        resolved: Called with the seconds that the lookup of the name took. It is not called for an address.
        clock: Measures the head start of an address before the next one is tried. Default: the system's clock.

    Raises:
        OSError: No address could be reached; if they failed in different ways, the text has all of them.
        socket.gaierror: The name has no address.
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
    """Return the socket address of a literal IP address, or an empty list for a name.

    A literal address needs neither a thread for lookup nor the tables of international names.
    """
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
    """Return the first connected socket, or None if all attempts failed or ``seconds`` have passed."""
    running = {attempt for attempt in attempts if not attempt.done()}
    with contextlib.suppress(TimeoutError):  # of TimeLimit; asyncio.wait raises none
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
    """Alternate address families, beginning with that of the first address."""
    families: dict[int, list[_Address]] = {}
    for address in addresses:
        families.setdefault(address[0], []).append(address)
    return [address for group in itertools.zip_longest(*families.values()) for address in group if address is not None]


def _all_failed(errors: list[OSError]) -> OSError:
    texts = dict.fromkeys(map(str, errors))
    return errors[0] if len(texts) == 1 else OSError(f"Multiple exceptions: {', '.join(texts)}")


# Stops listening without losing a connection that has just been accepted.
#
# ``asyncio.Server.close`` refuses a transport to a connection that was accepted in the same turn of the loop, and its socket stays open.


def stop_accepting(server: asyncio.Server) -> None:
    """Accept no further connections. The sockets stay open, so that clients wait. Call ``server.close()`` in the next turn of the loop."""
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening.fileno())


async def close_listening(server: asyncio.Server) -> None:
    """Close the listening sockets. Accepted connections stay open, and waiting ones are refused."""
    stop_accepting(server)
    # Not after the wait: a cancellation of the caller would leave the sockets open.
    asyncio.get_running_loop().call_soon(server.close)
    await asyncio.sleep(0)
