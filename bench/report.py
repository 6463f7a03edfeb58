"""Tables for a person; with ``--json`` the same figures for a machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from bench.goals import Figures, Goal
from bench.server_rates import Rates

_COLUMNS = {
    "list, us/object": ("listed_us", 1),
    "event, us": ("event_us", 1),
    "RSS at sync, KiB/object": ("sync_kib", 2),
    "after trim, KiB/object": ("floor_kib", 2),
    "peak, MiB": ("peak_mib", 0),
}


def _cell(figures: Figures, ours: Figures | None, field: str, digits: int) -> str:
    """The figure, and for a peer how many times kubeloop's it is."""
    value: float = getattr(figures, field)
    times = "" if ours is None or ours is figures else f" [dim](x{value / getattr(ours, field):.1f})"
    return f"{value:.{digits}f}{times}"


def show_informers(console: Console, title: str, found: dict[str, Figures]) -> None:
    table = Table(title=title)
    table.add_column("client")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    ours = found.get("kubeloop")
    for name, each in found.items():
        table.add_row(name, *(_cell(each, ours, field, digits) for field, digits in _COLUMNS.values()))
    console.print(table)


def show_starts(console: Console, starts: dict[str, float]) -> None:
    table = Table(title="process start to the first typed Pod")
    table.add_column("client")
    table.add_column("CPU, ms", justify="right")
    for name, seconds in starts.items():
        table.add_row(name, f"{seconds * 1e3:.0f}")
    console.print(table)


def show_server(console: Console, rates: Rates) -> None:
    table = Table(title="embedded server (one core, ConfigMaps over TLS)")
    for column in ("start to first answer, s", "creates per second", "gets per second"):
        table.add_column(column, justify="right")
    table.add_row(f"{rates.first_answer_s:.2f}", f"{rates.creates:.0f}", f"{rates.gets:.0f}")
    console.print(table)


def show_goals(console: Console, goals: Sequence[Goal]) -> None:
    table = Table(title="goals")
    table.add_column("what")
    table.add_column("kubeloop", justify="right")
    table.add_column("peer", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("at most", justify="right")
    table.add_column("")
    for goal in goals:
        verdict = "[green]reached" if goal.reached else "[red]missed"
        table.add_row(goal.what, f"{goal.ours:.2f}", f"{goal.theirs:.2f} {goal.peer}", f"{goal.ratio:.3f}", f"{goal.share:.3f}", verdict)
    console.print(table)


def as_json(informers: dict[str, dict[str, Figures]], starts: dict[str, float], rates: Rates | None, goals: Sequence[Goal]) -> str:
    return json.dumps(
        {
            "informers": {how: {name: asdict(each) for name, each in found.items()} for how, found in informers.items()},
            "starts_cpu_s": starts,
            "server": None if rates is None else asdict(rates),
            "goals": [asdict(goal) | {"ratio": goal.ratio, "reached": goal.reached} for goal in goals],
        },
        indent=1,
    )
