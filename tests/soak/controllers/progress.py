"""A run while it goes on: in place on a terminal, else a line every ten seconds; and its account at the end."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

from tests.soak.controllers.history import History
from tests.soak.controllers.load import Load
from tests.soak.controllers.replicas import Replicas
from tests.soak.controllers.settings import Settings
from tests.soak.controllers.storm import Storm
from tests.soak.memory import resident

if TYPE_CHECKING:
    from tests.soak.controllers.soak_run import Outcome

_LINES_EVERY = 10.0


class Progress:
    """``follow`` as a task."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._began = time.monotonic()
        self._terminal = sys.stdout.isatty()

    async def follow(self, load: Load, history: History, replicas: Replicas, storm: Storm) -> None:
        try:
            while True:
                line = self._line(load, history, replicas, storm)
                print(f"\r{line}\x1b[K" if self._terminal else line, end="" if self._terminal else "\n", flush=True)
                await asyncio.sleep(0.5 if self._terminal else _LINES_EVERY)
        finally:
            if self._terminal:
                print()

    def _line(self, load: Load, history: History, replicas: Replicas, storm: Storm) -> str:
        settings, seconds = self._settings, time.monotonic() - self._began
        work = f"{load.made:,} objects, {load.changed:,} of {settings.changes:,} changes, {history.unsettled:,} not reconciled"
        who = (
            f"{len(replicas.living)} replicas"
            if settings.sharded
            else f"{len(replicas.living)} replicas, {history.holder or 'no replica'} leads"
        )
        wrong = len(history.violations) + len(replicas.violations)
        return f"{settings.variant} {seconds:5.0f} s  {work}, {storm.counts.total():,} faults, {who}, {wrong} violations"


def report(outcome: Outcome) -> str:
    """All of it, a line for each thing that was counted."""
    settings = outcome.settings
    rate = outcome.changes / outcome.seconds / settings.controllers if outcome.seconds else 0.0
    leaders = f"{len(outcome.holders)} terms: {', '.join(outcome.holders)}" if not settings.sharded else "keys shared by all replicas"
    lines = {
        "load": f"{outcome.objects:,} objects of {settings.controllers} controllers, {outcome.changes:,} changes in "
        f"{outcome.seconds:.0f} s ({rate:.1f} a second for each), {outcome.again:,} tries again",
        "settled": f"{outcome.settling:.1f} s after the last change",
        "reconciles": f"{outcome.reconciles:,}, {outcome.late} still being cancelled when another replica began",
        "writes": _counts(outcome.writes),
        "leading": leaders,
        "replicas": _counts(outcome.ended),
        "faults": _counts(outcome.faults),
        "memory": "; ".join(str(one) for one in outcome.growth) or "too short to say",
        "of the server and the load": f"{resident():.0f} MiB",
        "verdict": f"{len(outcome.wrong)} violations"
        if outcome.wrong
        else "each object is reconciled to its last state, none by two at a time, nothing was written from an old state",
    }
    width = max(map(len, lines))
    return "\n".join([f"{settings.variant}, {settings.replicas} replicas", *(f"  {name:<{width}}  {text}" for name, text in lines.items())])


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"
