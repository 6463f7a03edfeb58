"""Runnable: what a manager runs, and the moment of it that a live view shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from kubeloop.controller.builder.surroundings import RunnableContext
from kubeloop.controller.runner.outcome import ReconcileCounts
from kubeloop.workqueue import QueueStats


@dataclass(frozen=True, slots=True)
class RunnerStats:
    """A moment of one controller, for a live view. ``last_change`` is the event that last led to a key: ``Deployment shop/web updated``."""

    name: str
    workers: int
    queue: QueueStats
    counts: ReconcileCounts
    last_change: str = ""


@runtime_checkable
class Runnable(Protocol):
    """What a manager runs."""

    @property
    def name(self) -> str: ...

    @property
    def stats(self) -> RunnerStats: ...

    @property
    def needs_leader(self) -> bool:
        """Whether it runs in one replica only, the leader. Without leader election it runs anyway."""

    @property
    def warm_up(self) -> bool:
        """Whether ``connect`` and ``synced`` are done before this replica leads, and only ``run`` after (behaviour R211)."""

    async def connect(self, surroundings: RunnableContext) -> None:
        """Ask for informers and register handlers. Nothing may be acted on yet."""

    async def synced(self, timeout: float) -> None:
        """Return when every handler has seen its initial objects (behaviour R207). The informers are synced when this is called."""

    async def run(self) -> None:
        """Work until ``stop``."""

    def stop(self) -> None:
        """Begin nothing new; ``run`` returns when what is under way has ended."""

    async def close(self) -> None:
        """Let go of everything; called once, after ``run`` has ended or was cancelled, and also if it never began."""
