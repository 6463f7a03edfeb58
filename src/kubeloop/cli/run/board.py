"""A snapshot of a manager for the live view of ``kubeloop run``. ``DashboardSnapshots`` takes it; other modules draw it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeloop.controller import Manager

#: Seconds that rates are averaged over.
WINDOW = 5.0


@dataclass(frozen=True, slots=True)
class ControllerRow:
    """The state of one controller on the dashboard.

    ``waiting``, ``working`` and ``later`` are numbers of keys. ``per_second``: recent reconciles per second. ``failing``: key of the last
    error.
    """

    name: str
    workers: int = 1
    waiting: int = 0
    working: int = 0
    later: int = 0
    reconciles: int = 0
    per_second: float = 0.0
    errors: int = 0
    failing: str = ""
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class InformerRow:
    """The state of one informer on the dashboard. ``why``: the reason why it is not synced."""

    what: str
    objects: int = 0
    synced: bool = True
    why: str = ""


@dataclass(frozen=True, slots=True)
class DashboardSnapshot:
    """The state of a program on the dashboard.

    ``state``: starting, running, standing for election (not the leader), stopping or stopped. ``seconds``: time since the start.
    """

    app: str
    cluster: str
    state: str
    seconds: float
    controllers: tuple[ControllerRow, ...] = ()
    informers: tuple[InformerRow, ...] = ()


class DashboardSnapshots:
    """Takes snapshots of one manager, in its event loop."""

    def __init__(self, app: str, manager: Manager) -> None:
        self._app = app
        self._manager = manager
        self._begun: float | None = None
        self._before: deque[tuple[float, dict[str, int]]] = deque()

    def take(self, now: float) -> DashboardSnapshot:
        """Take a snapshot. ``now``: seconds of any monotonic clock."""
        manager = self._manager
        if self._begun is None:
            self._begun = now
        stats = manager.stats
        then, counted = self._past(now, {one.name: one.counts.reconciles for one in stats})
        elapsed = now - then
        rows = tuple(
            ControllerRow(
                one.name,
                one.workers,
                one.queue.waiting,
                one.queue.processing,
                one.queue.delayed,
                one.counts.reconciles,
                (one.counts.reconciles - counted.get(one.name, 0)) / elapsed if elapsed > 0 else 0.0,
                one.counts.errors,
                one.counts.last_error_key,
                one.counts.last_error,
            )
            for one in stats
        )
        informers = tuple(
            InformerRow(one.description, len(one.lister), one.synced, "" if one.synced else one.waiting_for())
            for cluster in manager.clusters.values()
            for one in cluster.informers
        )
        servers = ", ".join(cluster.client.transport.config.server for cluster in manager.clusters.values())
        return DashboardSnapshot(self._app, servers, self._state(), now - self._begun, rows, informers)

    def _state(self) -> str:
        manager = self._manager
        if manager.phase == "running" and not manager.is_leader:
            return "standing for election"
        return "starting" if manager.phase == "new" else manager.phase

    def _past(self, now: float, counted: dict[str, int]) -> tuple[float, dict[str, int]]:
        """Record the counts of reconciles; return the time and the counts at the beginning of the window."""
        self._before.append((now, counted))
        while len(self._before) > 2 and self._before[1][0] <= now - WINDOW:
            self._before.popleft()
        return self._before[0]
