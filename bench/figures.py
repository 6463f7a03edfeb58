"""What runs mean: medians of what clients printed, in the units of the tables. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

JSON = dict[str, Any]
Run = dict[str, JSON]
"""What a client printed, by phase."""


@dataclass(frozen=True)
class InformerFigures:
    """Medians over the runs of one client. Microseconds of CPU; resident memory above the process's own before its first list.

    ``sync_kib``: per object right after the sync. ``floor_kib``: after a collection and a trim. ``settled_mib``: the whole process, a
    second after the sync (kubeloop only, else at the sync). ``peak_mib``: at its largest until the sync was done; ``highest_mib``: ever.
    ``stall_ms``: how long its event loop stood still at most (kubeloop only).
    """

    pods: int
    listed_us: float
    event_us: float
    sync_kib: float
    floor_kib: float
    settled_mib: float
    peak_mib: float
    highest_mib: float
    stall_ms: float


def figures(runs: Sequence[Run]) -> InformerFigures:
    def median(read: Callable[[Run], float]) -> float:
        return statistics.median(map(read, runs))

    def kib(phase: str) -> float:
        return median(lambda run: (run[phase]["rss_kib"] - run["start"]["rss_kib"]) / run["sync"]["objects"])

    return InformerFigures(
        pods=runs[0]["sync"]["objects"],
        # kubeloop packs a part of a list after the sync: that belongs to it.
        listed_us=median(lambda run: run.get("settled", run["sync"])["cpu_s"] / run["sync"]["objects"] * 1e6),
        event_us=median(lambda run: run["events"]["cpu_s"] / run["events"]["objects"] * 1e6),
        sync_kib=kib("sync"),
        floor_kib=kib("hold"),
        settled_mib=median(lambda run: run.get("settled", run["sync"])["rss_kib"] / 1024),
        peak_mib=median(lambda run: run.get("settled", run["sync"])["hwm_kib"] / 1024),
        highest_mib=median(lambda run: run["hold"]["hwm_kib"] / 1024),
        stall_ms=max(run.get("settled", run["sync"]).get("longest_stall_ms", 0.0) for run in runs),
    )


@dataclass(frozen=True)
class Queries:
    """Medians over the runs of ``kubeloop_reading``. CPU; ``stall_ms`` is the longest of all runs."""

    get_us: float
    select_s: float
    selected: int
    stall_ms: float
    restart_s: float
    restarted: int


def queries(runs: Sequence[Run]) -> Queries:
    def median(phase: str) -> float:
        return float(statistics.median(run[phase]["cpu_s"] for run in runs))

    return Queries(
        get_us=median("get") / runs[0]["get"]["objects"] * 1e6,
        select_s=median("select"),
        selected=runs[0]["select"]["objects"],
        stall_ms=max(run["select"]["longest_stall_ms"] for run in runs),
        restart_s=median("restart"),
        restarted=runs[0]["restart"]["objects"],
    )
