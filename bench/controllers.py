"""A controller whose reconcile only counts, beside controller-runtime (JSON) and kopf: all pods at start-up, then an event for each.

The replay server's pods and events, one program at a time, rounds interleaved, CPU time of the program alone.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench import prepare
from bench.clients import Peer
from bench.prepare import BUILD, KOPF
from bench.replay import Replay
from bench.targets import Target

KUBELOOP = "kubeloop"
CONTROLLER_RUNTIME = "controller-runtime JSON"
KOPF_NAME = "kopf (on.event)"

_ARGUMENTS = ("--server", "{server}", "--count", "{count}", "--last-rv", "{last_rv}")
PEERS = (
    Peer(KUBELOOP, (sys.executable, "-m", "bench.peers.controllers.kubeloop_controller", *_ARGUMENTS)),
    Peer(CONTROLLER_RUNTIME, (str(BUILD / "controller"), "-server", "{server}", "-count", "{count}", "-last-rv", "{last_rv}")),
    Peer(KOPF_NAME, (str(KOPF), "-m", "bench.peers.controllers.kopf_controller", *_ARGUMENTS), needs="kopf"),
)


@dataclass(frozen=True)
class Figures:
    """Microseconds of CPU, of one object until all were reconciled once after the start, and of one event; ``mib``: resident at the end."""

    start_us: float
    event_us: float
    mib: float


def measure(
    *, pods: int, rounds: int, only: Sequence[str], missing: Mapping[str, str], say: Callable[[str], None]
) -> tuple[dict[str, Figures], dict[str, str]]:
    """Medians of each program, and why others have none."""
    failed = {peer.name: missing[peer.needs] for peer in PEERS if peer.needs in missing}
    samples: dict[str, list[Figures]] = {}
    with Replay(prepare.pods(pods, pods * 2)) as replay:
        for number in range(rounds):
            for peer in PEERS:
                if peer.name in failed or (only and not peer.name.startswith(tuple(only))):
                    continue
                say(f"round {number + 1} of {rounds}: {peer.name}")
                try:
                    found = replay.run(peer, events=pods)
                except RuntimeError as error:
                    failed[peer.name] = str(error)
                    continue
                each = Figures(found["sync"]["cpu_s"] / pods * 1e6, found["events"]["cpu_s"] / pods * 1e6, found["hold"]["rss_kib"] / 1024)
                samples.setdefault(peer.name, []).append(each)
    return {name: _medians(each) for name, each in samples.items()}, failed


def _medians(samples: Sequence[Figures]) -> Figures:
    start, event, mib = (
        statistics.median(values) for values in zip(*((each.start_us, each.event_us, each.mib) for each in samples), strict=True)
    )
    return Figures(start, event, mib)


def judge(found: Mapping[str, Figures]) -> Iterator[Target]:
    """The limits of an empty reconcile: 100 us an event, a fifth of kopf's; at start-up controller-runtime's."""
    ours, kopf, runtime = found.get(KUBELOOP), found.get(KOPF_NAME), found.get(CONTROLLER_RUNTIME)
    if ours is None:
        return
    event = "watch event, socket to an empty reconcile with a typed pod"
    yield Target(event, "us", ours.event_us, 100, "")
    for share, name, theirs in ((0.2, KOPF_NAME, kopf), (1.0, CONTROLLER_RUNTIME, runtime)):
        limit = None if theirs is None else share * theirs.event_us
        yield Target(event, "us", ours.event_us, limit, f"{share:g} of {name}")
    start = "all pods reconciled once after the start, each"
    yield Target(start, "us", ours.start_us, None if runtime is None else runtime.start_us, f"1 of {CONTROLLER_RUNTIME}")


def show(console: Console, title: str, found: Mapping[str, Figures], failed: Mapping[str, str]) -> None:
    table = Table(title=title)
    columns = {"start-up, us/object": "start_us", "event, us": "event_us", "resident, MiB": "mib"}
    table.add_column("program")
    for column in columns:
        table.add_column(column, justify="right")
    ours = found.get(KUBELOOP)
    for name, each in found.items():
        cells = []
        for field in columns.values():
            value: float = getattr(each, field)
            times = "" if ours is None or ours is each else f" [dim](x{value / getattr(ours, field):.1f})"
            cells.append(f"{value:.0f}{times}")
        table.add_row(name, *cells)
    for name, why in failed.items():
        table.add_row(name, f"[yellow]{why.strip().splitlines()[-1][:60]}")
    console.print(table)
