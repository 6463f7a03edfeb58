"""Tables for a person; ``results.json`` for plots and later questions."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.bitcoin import BitcoinRun
from bench.controlplane import KUBELOOP, ControlPlaneRun, IdleRun
from bench.figures import InformerFigures
from bench.ingress import IngressRun
from bench.servers import Load, Server
from bench.targets import Target

_COLUMNS = {
    "list, us/object": ("listed_us", 1),
    "event, us": ("event_us", 1),
    "at sync, KiB/object": ("sync_kib", 2),
    "after trim, KiB/object": ("floor_kib", 2),
    "peak, MiB": ("peak_mib", 0),
}


def _cell(figures: InformerFigures, ours: InformerFigures | None, field: str, digits: int) -> str:
    """The figure, and for a peer how many times kubeloop's it is."""
    value: float = getattr(figures, field)
    times = "" if ours is None or ours is figures else f" [dim](x{value / max(1e-9, getattr(ours, field)):.1f})"
    return f"{value:.{digits}f}{times}"


def show_informers(console: Console, title: str, results: Mapping[str, InformerFigures], missing: Mapping[str, str]) -> None:
    table = Table(title=title)
    table.add_column("client")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    ours = results.get("kubeloop")
    for name, each in results.items():
        table.add_row(name, *(_cell(each, ours, field, digits) for field, digits in _COLUMNS.values()))
    for name, why in missing.items():
        table.add_row(name, f"[yellow]{why.strip().splitlines()[-1][:60]}")
    console.print(table)


def show_starts(console: Console, starts: Mapping[str, float]) -> None:
    table = Table(title="process start to the first typed Pod")
    table.add_column("client")
    table.add_column("CPU, ms", justify="right")
    for name, seconds in starts.items():
        table.add_row(name, f"{seconds * 1e3:.0f}")
    console.print(table)


def show_servers(console: Console, results: Mapping[str, Server]) -> None:
    table = Table(title="API servers, HTTP/1.1 over TLS")
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")
    table.add_row("start to first answer, s", *(f"{server.start_s:.2f}" for server in results.values()))
    table.add_row("the same, CPU, s", *(f"{server.start_cpu_s:.2f}" for server in results.values()))
    table.add_row("resident when fresh, MiB", *(f"{server.fresh_mib:.0f}" for server in results.values()))
    for key in next(iter(results.values())).loads:
        table.add_row(key, *(_load(server.loads.get(key)) for server in results.values()))
    if any(server.logged for server in results.values()):
        table.add_row("audit log, MiB", *(f"{server.logged / (1 << 20):.1f}" for server in results.values()))
    console.print(table)


def show_control_planes(console: Console, replicas: int, nodes: int, results: Mapping[str, ControlPlaneRun]) -> None:
    """Print what a Deployment costs each control plane."""
    table = Table(title=f"a Deployment of {replicas:,} replicas on {nodes} simulated nodes")
    table.add_column("")
    for name in results:
        table.add_column(name, justify="right")
    for label, phases in (("up", [run.up for run in results.values()]), ("down", [run.down for run in results.values()])):
        table.add_row(f"{label}, s", *(f"{phase.seconds:.1f}" for phase in phases))
        table.add_row(f"{label}, CPU, s", *(f"{phase.cpu_s:.1f}" for phase in phases))
        table.add_row(f"{label}, resident afterwards, MiB", *(f"{phase.resident_mib:.0f}" for phase in phases))
    table.add_row("idle, share of a core", *(f"{run.idle_share:.1%}" for run in results.values()))
    console.print(table)


def show_idle(console: Console, nodes: int, pods: int, run: IdleRun) -> None:
    """Print what a cluster costs in which nothing changes."""
    table = Table(title=f"{nodes:,} simulated nodes and {pods:,} pods, idle")
    table.add_column("")
    table.add_column(KUBELOOP, justify="right")
    table.add_row("share of a core", f"{run.share:.1%}")
    table.add_row("resident, MiB", f"{run.resident_mib:.0f}")
    table.add_row("all pods ready after, s", f"{run.filled_s:.0f}")
    console.print(table)


def show_process_pod(console: Console, durations: Sequence[float]) -> None:
    """Print how long a process pod takes to become Ready: the first one, and the median of the others."""
    table = Table(title="A Deployment of one process pod, from kubectl apply to Ready")
    table.add_column("")
    table.add_column("s", justify="right")
    table.add_row("first", f"{durations[0]:.2f}")
    table.add_row(f"median of {len(durations)}", f"{median(durations):.2f}")
    table.add_row("slowest", f"{max(durations):.2f}")
    console.print(table)


def show_bitcoin(console: Console, run: BitcoinRun) -> None:
    """Print the figures of the bitcoin operator."""
    table = Table(title="The bitcoin operator")
    table.add_column("")
    table.add_column(KUBELOOP, justify="right")
    table.add_row("three real daemons, kubectl apply to full mesh, s", f"{run.formed_s:.1f}")
    table.add_row("the same, CPU of the operator, ms", f"{run.formed_cpu_ms:.0f}")
    table.add_row("50 nodes that do not change, share of a core", f"{run.steady_share:.3%}")
    table.add_row("the same, writes and requests to daemons", f"{run.steady_writes:.0f}, {run.steady_requests}")
    table.add_row("start with 200 networks of 5, CPU, s", f"{run.start_cpu_s:.2f}")
    table.add_row("resident then, MiB", f"{run.resident_mib:.0f}")
    console.print(table)


def show_ingress(console: Console, runs: Sequence[IngressRun]) -> None:
    """Print the figures of the ingress controller, a column for each mode of NGINX."""
    table = Table(title="The ingress controller: 1,000 Ingresses of 10 paths")
    table.add_column("")
    for run in runs:
        table.add_column(run.mode, justify="right")
    rows: list[tuple[str, Callable[[IngressRun], str]]] = [
        ("model and configuration at start, CPU, s", lambda run: f"{run.start_cpu_s:.2f}"),
        ("change of an endpoint, CPU, ms", lambda run: f"{run.endpoint_cpu_ms:.1f}"),
        ("the same, until NGINX serves it, ms", lambda run: f"{run.endpoint_ms:.0f}"),
        ("change of an Ingress, CPU, ms", lambda run: f"{run.ingress_cpu_ms:.1f}"),
        ("the same, until NGINX serves it, ms", lambda run: f"{run.ingress_ms:.0f}"),
        ("reloads: changes of endpoints, burst of 1,000", lambda run: f"{run.endpoint_reloads}, {run.burst_reloads}"),
        ("resident, MiB", lambda run: f"{run.resident_mib:.0f}"),
        ("requests per second", lambda run: f"{run.requests:.0f}"),
        ("the same, hand-written configuration", lambda run: f"{run.hand_written:.0f}"),
    ]
    for title, value in rows:
        table.add_row(title, *(value(run) for run in runs))
    console.print(table)


def _load(load: Load | None) -> str:
    if load is None:
        return ""
    rate = f"{load.per_second:.0f}/s " if load.per_second else ""
    return f"{rate}[dim]{load.p50_ms:.1f} ms, CPU {load.cpu_s:.2f} s"


def show_targets(console: Console, targets: Iterable[Target]) -> None:
    table = Table(title="targets")
    for column in ("what", "kubeloop", "at most", "of it", "", "goal"):
        table.add_column(column, justify="left" if column in ("what", "") else "right")
    for target in targets:
        unknown = "" if target.goal is not None else "[yellow]?"
        verdict = {None: unknown, True: "[green]met", False: "[red]not met"}[target.met]
        limit = "" if target.limit is None else f"{target.limit:.4g}"
        at_most = f"{limit} [dim]({target.against})" if target.against else limit
        of_it = f"{target.ours / target.limit:.2f}" if target.limit else ""
        goal = "" if target.goal is None else f"{target.goal:g} {'[green]met' if target.goal_met else '[red]not met'}"
        table.add_row(target.what, f"{target.ours:.4g} {target.unit}", at_most, of_it, verdict, goal)
    console.print(table)


class Results:
    """What was found so far, on disk after each step, so that a run that breaks off leaves what it has.

    Runs of ``million`` and of the default stages live side by side; a stage that is measured again replaces its last figures.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._found: dict[str, Any] = json.loads(path.read_text())
        except (OSError, ValueError):
            self._found = {}

    def put(self, section: str, name: str, value: object) -> None:
        self._found.setdefault(section, {})[name] = value
        self._found["machine"] = {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "system": platform.platform(),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self._found, indent=1))

    def put_targets(self, section: str, targets: Iterable[Target]) -> None:
        self.put("targets", section, [asdict(each) | {"met": each.met, "goal_met": each.goal_met} for each in targets])

    def figures(self, stage: str) -> dict[str, InformerFigures]:
        """Of an earlier run, or this one."""
        found: dict[str, Any] = self._found.get("stages", {}).get(stage, {})
        return {name: InformerFigures(**values) for name, values in found.items()}

    def stages(self) -> dict[str, dict[str, InformerFigures]]:
        return {stage: self.figures(stage) for stage in self._found.get("stages", {})}


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
