"""What the measurements mean: medians, ratios and whether each goal was reached. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

JSON = dict[str, Any]


@dataclass(frozen=True)
class Figures:
    """Medians over the runs of one client. Microseconds of CPU, KiB of resident memory per object above the process's own."""

    listed_us: float
    event_us: float
    sync_kib: float
    floor_kib: float
    peak_mib: float


def figures(runs: Sequence[dict[str, JSON]]) -> Figures:
    def median(read: Callable[[dict[str, JSON]], float]) -> float:
        return statistics.median(map(read, runs))

    def kib(phase: str) -> float:
        return median(lambda run: (run[phase]["rss_kib"] - run["start"]["rss_kib"]) / run["sync"]["objects"])

    return Figures(
        listed_us=median(lambda run: run["sync"]["cpu_s"] / run["sync"]["objects"] * 1e6),
        event_us=median(lambda run: run["events"]["cpu_s"] / run["events"]["objects"] * 1e6),
        sync_kib=kib("sync"),
        floor_kib=kib("hold"),
        peak_mib=median(lambda run: run["hold"]["hwm_kib"] / 1024),
    )


@dataclass(frozen=True)
class Goal:
    """``ours`` at most ``share`` of ``theirs``."""

    what: str
    ours: float
    theirs: float
    peer: str
    share: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def reached(self) -> bool:
        return self.ratio <= self.share


def informer_goals(found: dict[str, Figures], how: str) -> list[Goal]:
    """Those that the measured peers allow to judge."""
    ours = found.get("kubeloop")
    goals: list[Goal] = []
    if ours is None:
        return goals
    if (other := found.get("lightkube")) is not None:
        goals += [
            Goal(f"CPU per event, {how}", ours.event_us, other.event_us, "lightkube", 1 / 4),
            Goal(f"CPU per listed object, {how}", ours.listed_us, other.listed_us, "lightkube", 1 / 3),
            Goal(f"memory per cached pod, {how}", ours.floor_kib, other.floor_kib, "lightkube", 1 / 12),
        ]
    if (other := found.get("client-go protobuf")) is not None:
        goals.append(Goal(f"CPU per event, {how}", ours.event_us, other.event_us, "client-go protobuf", 1))
    return goals


def start_goal(starts: dict[str, float]) -> list[Goal]:
    if "kubeloop" in starts and "lightkube" in starts:
        return [Goal("CPU from process start to the first typed Pod", starts["kubeloop"] * 1e3, starts["lightkube"] * 1e3, "lightkube", 1)]
    return []
