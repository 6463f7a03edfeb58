"""Add, get and done of distinct keys: kubeloop's queues beside client-go's work queue and controller-runtime's priority queue.

No network and no reconcile: separate processes, rounds interleaved, CPU of the whole process, so that Go's collector counts too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.prepare import BUILD, HERE
from bench.replay import wait_quiet
from bench.targets import Target

#: Phase (queue, kind of key, order) to microseconds of CPU for one key.
Costs = Mapping[str, float]

KUBELOOP = "kubeloop"
GO = "Go"
ORDERS = {"all": "all wait before the first is taken", "each": "each is taken as it comes"}
KINDS = {"texts": "namespace/name", "keys": "ObjectKey; reconcile.Request"}


def programs(build: Path = BUILD) -> dict[str, list[str]]:
    return {KUBELOOP: [sys.executable, "-m", "bench.peers.kubeloop_queues"], GO: [str(build / "queues")]}


def measure(*, count: int, rounds: int, timeout: float, say: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """Program to phase to the fastest of its rounds: what else the machine does only ever adds to a figure this small.

    Raises:
        RuntimeError: a program failed; what it wrote.
    """
    samples: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds):
        for name, command in programs().items():
            say(f"queues, round {number + 1} of {rounds}: {name}")
            wait_quiet(0.15, timeout)
            whole = [*command, "-count", str(count), "-rounds", "3"]
            run = subprocess.run(whole, cwd=HERE.parent, capture_output=True, text=True, check=False)
            if run.returncode:
                raise RuntimeError(f"{name}: {run.stderr.strip()[-2000:]}")
            for line in run.stdout.splitlines():
                found = json.loads(line)
                samples.setdefault(name, {}).setdefault(found["phase"], []).append(found["cpu_s"] / found["objects"] * 1e6)
    return {name: {phase: min(each) for phase, each in phases.items()} for name, phases in samples.items()}


def judge(results: Mapping[str, Costs]) -> Iterator[Target]:
    """A microsecond at most, and 4 times client-go's; a priority queue no more than controller-runtime's."""
    ours, go = results.get(KUBELOOP, {}), results.get(GO, {})
    for kind in KINDS:
        for order in ORDERS:
            phase = f"{kind}, {order}"
            for queue, theirs, share in (
                ("work queue", go.get(f"work queue, {phase}"), 4.0),
                ("priority queue", go.get(f"priority queue, {phase}"), 1.0),
            ):
                peer = "client-go" if queue == "work queue" else "controller-runtime"
                mine = ours.get(f"{queue}, {phase}")
                if mine is None:
                    continue
                if queue == "work queue":
                    yield Target(f"{queue}, {phase}", "us", mine, 1.0, "", 0.52)
                if theirs is not None:
                    yield Target(f"{queue}, {phase}", "us", mine, share * theirs, f"{share:g} x {theirs:.3g} of {peer}")
            if (measured := ours.get(f"work queue with metrics, {phase}")) is not None:
                yield Target(f"work queue with metrics, {phase}", "us", measured, None, "the goal alone", 1.0)
    if (mine := ours.get("priority queue, keys, all")) is not None:
        yield Target("priority queue, keys, all", "us", mine, 2.4, "")


def show(console: Console, title: str, results: Mapping[str, Costs]) -> None:
    """A row for each queue and kind of key; a column for each order and program."""
    table = Table(title=title)
    table.add_column("us of CPU for add, get and done of a key")
    for order in ORDERS.values():
        for name in (KUBELOOP, GO, "ratio"):
            table.add_column(f"{order}: {name}" if name == KUBELOOP else name, justify="right")
    rows = dict.fromkeys(phase.rpartition(", ")[0] for costs in results.values() for phase in costs)
    for row in rows:
        cells: list[str] = []
        for order in ORDERS:
            ours, theirs = (results.get(name, {}).get(f"{row}, {order}") for name in (KUBELOOP, GO))
            ratio = f"{ours / theirs:.2f}" if ours is not None and theirs is not None else ""
            cells += [*("" if each is None else f"{each:.3f}" for each in (ours, theirs)), ratio]
        table.add_row(row, *cells)
    console.print(table)
    console.print(f"[dim]keys: {'; '.join(f'{kind} are {what}' for kind, what in KINDS.items())}")
