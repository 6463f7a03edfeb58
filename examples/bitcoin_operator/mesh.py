"""The mesh of a network: every ready daemon lists every other one as an added node."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from examples.bitcoin_operator.rpc import Credentials, RpcClient, RpcError, Unreachable, WarmingUp
from kubeloop.tasks import end_tasks

_LOG = logging.getLogger(__name__)

#: Seconds until a failed daemon is tried again: the first time, and at most.
RETRY, LONGEST_RETRY = 1.0, 60.0
#: Seconds after which a list is compared once more, if an earlier request ended without an answer.
COMPARE_AGAIN = 30.0


@dataclass(frozen=True)
class Daemon:
    """One run of a daemon. A restarted daemon has an empty list of added nodes, so it is another one, even with the same address.

    Attributes:
        ip: Address of its pod.
        run: Identity of its container's run.
        secret_version: Version of the Secret that it was started with.
    """

    ip: str
    run: str
    secret_version: str = ""


@dataclass
class _Failure:
    error: RpcError
    count: int
    retry_at: float


@dataclass(frozen=True)
class MeshState:
    """The state of a mesh after a round.

    Attributes:
        connected: Daemons that list all others and nothing else.
        running: Daemons whose requests have not ended yet.
        failures: Last error of each daemon that failed.
        retry_after: Seconds until the next round is due; None if no daemon waits for one.
    """

    connected: frozenset[Daemon]
    running: frozenset[Daemon]
    failures: dict[Daemon, RpcError] = field(default_factory=dict)
    retry_after: float | None = None


async def connect(rpc: RpcClient, ip: str, peers: frozenset[str], credentials: Credentials) -> bool:
    """Make the list of added nodes of one daemon equal to ``peers``.

    Returns:
        Whether the list was changed.

    Raises:
        RpcError: A request failed. A next call continues.
    """
    added = frozenset(await rpc.added_nodes(ip, credentials))
    if added == peers:
        return False
    await rpc.change_nodes(ip, credentials, add=sorted(peers - added), remove=sorted(added - peers))
    return True


class Mesh:
    """Connects the daemons of one network, and remembers which list each of them has.

    It sends requests to new daemons, and when the set of ready daemons changes: a steady network costs no request. The requests of
    different daemons run at the same time, in tasks: a daemon that does not answer delays neither the others nor the caller.

    Args:
        rpc: Client for the requests.
        now: Returns the seconds of a clock.
        ended: Called when a request completes after ``round`` has returned.

    Example:
        >>> mesh = Mesh(rpc, time.monotonic, lambda: None)
        >>> daemons = [Daemon("10.0.0.1", "a"), Daemon("10.0.0.2", "b")]
        >>> state = await mesh.round(daemons, daemons, Credentials("user", "password"), wait=1.0)
        >>> len(state.connected)
        2
    """

    def __init__(self, rpc: RpcClient, now: Callable[[], float], ended: Callable[[], None]) -> None:
        self._rpc = rpc
        self._now = now
        self._ended = ended
        self._lists: dict[Daemon, frozenset[str]] = {}
        self._failures: dict[Daemon, _Failure] = {}
        self._tasks: dict[Daemon, asyncio.Task[None]] = {}
        #: Tasks of daemons that are no longer ready, until they have ended.
        self._cancelled: set[asyncio.Task[None]] = set()
        self._waiting = False
        #: Daemons whose last request ended without an answer, and may still be carried out; and when their lists are compared once more.
        self._unanswered: set[Daemon] = set()
        self._compare_at: dict[Daemon, float] = {}

    async def round(self, ready: Iterable[Daemon], reachable: Iterable[Daemon], credentials: Credentials, *, wait: float) -> MeshState:
        """Connect each reachable daemon to all ready ones.

        Args:
            ready: All ready daemons.
            reachable: The daemons among them that accept ``credentials``.
            credentials: User and password.
            wait: Seconds to wait for the requests; longer ones go on, and end with a call of ``ended``.

        Returns:
            The state after the wait.
        """
        addresses = frozenset(daemon.ip for daemon in ready)
        desired = {daemon: addresses - {daemon.ip} for daemon in reachable}
        self._forget(desired)
        started = []
        for daemon, peers in desired.items():
            if daemon not in self._tasks and self._is_due(daemon, peers):
                self._tasks[daemon] = asyncio.create_task(self._connect(daemon, peers, credentials), name=f"mesh of {daemon.ip}")
                started.append(self._tasks[daemon])
        if started:
            self._waiting = True
            try:
                await asyncio.wait(started, timeout=wait)
            finally:
                self._waiting = False
        return self._state(desired)

    def _is_due(self, daemon: Daemon, peers: frozenset[str]) -> bool:
        """Return whether the list of a daemon must be compared now."""
        now, failure = self._now(), self._failures.get(daemon)
        if failure is not None:
            return failure.retry_at <= now
        return self._lists.get(daemon) != peers or self._compare_at.get(daemon, math.inf) <= now

    async def close(self) -> None:
        """Cancel all requests, and wait until they have ended."""
        tasks = [*self._tasks.values(), *self._cancelled]
        self._tasks.clear()
        await end_tasks(*tasks)

    def _state(self, desired: dict[Daemon, frozenset[str]]) -> MeshState:
        connected = frozenset(daemon for daemon, peers in desired.items() if self._lists.get(daemon) == peers)
        failures = {daemon: failure for daemon, failure in self._failures.items() if daemon not in connected}
        idle = [daemon for daemon in desired if daemon not in connected and daemon not in self._tasks]
        # A daemon without a failure got an older list meanwhile: the next round is due.
        waits = [max(0.0, failures[daemon].retry_at - self._now()) if daemon in failures else 0.0 for daemon in idle]
        waits += [max(0.0, at - self._now()) for daemon, at in self._compare_at.items() if daemon in connected]
        errors = {daemon: failure.error for daemon, failure in failures.items()}
        return MeshState(connected, frozenset(self._tasks), errors, min(waits, default=None))

    def _forget(self, desired: dict[Daemon, frozenset[str]]) -> None:
        """Forget the daemons that are no longer ready. Their requests are cancelled."""
        for known in (self._lists, self._failures, self._compare_at):
            for daemon in [daemon for daemon in known if daemon not in desired]:
                del known[daemon]
        for daemon in [daemon for daemon in self._tasks if daemon not in desired]:
            task = self._tasks.pop(daemon)
            task.cancel()
            self._cancelled.add(task)
            task.add_done_callback(self._cancelled.discard)
            self._unanswered.add(daemon)
        # A pod that is replaced, or a container that restarts, never comes back as the same daemon.
        runs = {daemon.ip: daemon for daemon in desired}
        self._unanswered = {daemon for daemon in self._unanswered if runs.get(daemon.ip, daemon) == daemon}

    async def _connect(self, daemon: Daemon, peers: frozenset[str], credentials: Credentials) -> None:
        # A request that fails half-way leaves an unknown list.
        self._lists.pop(daemon, None)
        self._compare_at.pop(daemon, None)
        error: RpcError | None = None
        try:
            await connect(self._rpc, daemon.ip, peers, credentials)
        except RpcError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001 - it may be any bug
            # A bug must not end the mesh of this daemon silently.
            _LOG.exception("daemon %s: connecting it failed unexpectedly", daemon.ip)
            error = RpcError(f"daemon {daemon.ip}: {type(failure).__name__}, see the operator's log")
        if self._tasks.get(daemon) is not asyncio.current_task():
            return  # the daemon is no longer ready, or has been replaced
        del self._tasks[daemon]
        if error is None:
            self._lists[daemon] = peers
            self._failures.pop(daemon, None)
            if daemon in self._unanswered:
                # A daemon that was busy may carry out the older request after this one.
                self._unanswered.discard(daemon)
                self._compare_at[daemon] = self._now() + COMPARE_AGAIN
        else:
            self._failures[daemon] = self._failure(daemon, error)
            if isinstance(error, Unreachable):
                self._unanswered.add(daemon)
        if not self._waiting:
            self._ended()

    def _failure(self, daemon: Daemon, error: RpcError) -> _Failure:
        before = self._failures.get(daemon)
        count = before.count if before is not None else 0
        if isinstance(error, WarmingUp):
            # A daemon that starts needs seconds, and no back-off: it is not at fault.
            return _Failure(error, count, self._now() + RETRY)
        delay = min(RETRY * 2.0 ** min(count, 10), LONGEST_RETRY)
        return _Failure(error, count + 1, self._now() + delay)
