"""A controller whose reconcile only counts, beside controller-runtime (JSON) and kopf: all pods at start-up, then an event for each.

Events come as fast as they can be sent, as after an outage, or one at a time, which wakes the program for each.
The replay server's pods and events, one program at a time, rounds interleaved, CPU time of the program alone.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace

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

#: Before each event that comes alone: longer than the quick ones take for one. kopf takes longer, and has several at hand then.
PAUSE = "2ms"

_ARGUMENTS = ("--server", "{server}", "--count", "{count}", "--last-rv", "{last_rv}")
PEERS = (
    Peer(KUBELOOP, (sys.executable, "-m", "bench.peers.controllers.kubeloop_controller", *_ARGUMENTS)),
    Peer(CONTROLLER_RUNTIME, (str(BUILD / "controller"), "-server", "{server}", "-count", "{count}", "-last-rv", "{last_rv}")),
    Peer(KOPF_NAME, (str(KOPF), "-m", "bench.peers.controllers.kopf_controller", *_ARGUMENTS), needs="kopf"),
)


@dataclass(frozen=True)
class ControllerFigures:
    """Microseconds of CPU, of one object until all were reconciled once after the start, of one event of many, of one event alone.

    ``mib``: resident at the end.
    """

    start_us: float
    event_us: float
    alone_us: float
    mib: float


def measure(
    *, pods: int, rounds: int, only: Sequence[str], missing: Mapping[str, str], say: Callable[[str], None]
) -> tuple[dict[str, ControllerFigures], dict[str, str]]:
    """Medians of each program, and why others have none."""
    failed = {peer.name: missing[peer.needs] for peer in PEERS if peer.needs in missing}
    samples: dict[str, list[ControllerFigures]] = {}
    few = max(20, pods // 5)
    with Replay(prepare.pods(pods, pods * 2)) as replay, Replay(prepare.pods(few, few * 2)) as trickle:
        for number in range(rounds):
            for peer in PEERS:
                if peer.name in failed or (only and not peer.name.startswith(tuple(only))):
                    continue
                say(f"round {number + 1} of {rounds}: {peer.name}")
                try:
                    found = replay.run(peer, events=pods)
                    alone = trickle.run(_alone(peer), events=few)["events"]["cpu_s"] / few * 1e6
                except RuntimeError as error:
                    failed[peer.name] = str(error)
                    continue
                start, event = (found[phase]["cpu_s"] / pods * 1e6 for phase in ("sync", "events"))
                samples.setdefault(peer.name, []).append(ControllerFigures(start, event, alone, found["hold"]["rss_kib"] / 1024))
    return {name: _medians(each) for name, each in samples.items()}, failed


def _alone(peer: Peer) -> Peer:
    """The same program, with events one at a time."""
    return replace(peer, command=(*peer.command, "-pause" if peer.name == CONTROLLER_RUNTIME else "--pause", PAUSE))


def _medians(samples: Sequence[ControllerFigures]) -> ControllerFigures:
    return ControllerFigures(*(statistics.median(values) for values in zip(*(astuple(each) for each in samples), strict=True)))


def judge(results: Mapping[str, ControllerFigures]) -> Iterator[Target]:
    """The limits of an empty reconcile: 100 us an event, a fifth of kopf's; at start-up controller-runtime's.

    An event that comes alone finds the processor's caches cold: for it the same figures are goals, and controller-runtime's is the limit.
    """
    ours, kopf, runtime = results.get(KUBELOOP), results.get(KOPF_NAME), results.get(CONTROLLER_RUNTIME)
    if ours is None:
        return
    event, alone = (f"{which}, socket to an empty reconcile with a typed pod" for which in ("watch event of many", "watch event alone"))
    yield Target(event, "us", ours.event_us, 100, "")
    yield Target(event, "us", ours.event_us, None if kopf is None else 0.2 * kopf.event_us, f"0.2 of {KOPF_NAME}")
    yield Target(event, "us", ours.event_us, None if runtime is None else runtime.event_us, f"1 of {CONTROLLER_RUNTIME}")
    limit = None if runtime is None else runtime.alone_us
    yield Target(alone, "us", ours.alone_us, limit, f"1 of {CONTROLLER_RUNTIME}", 100)
    if kopf is not None:
        yield Target(alone, "us", ours.alone_us, None, "the goal alone: 0.2 of kopf", round(0.2 * kopf.alone_us))
    start = "all pods reconciled once after the start, each"
    yield Target(start, "us", ours.start_us, None if runtime is None else runtime.start_us, f"1 of {CONTROLLER_RUNTIME}")


def show(console: Console, title: str, results: Mapping[str, ControllerFigures], failed: Mapping[str, str]) -> None:
    table = Table(title=title)
    columns = {"start-up, us/object": "start_us", "event of many, us": "event_us", "event alone, us": "alone_us", "resident, MiB": "mib"}
    table.add_column("program")
    for column in columns:
        table.add_column(column, justify="right")
    ours = results.get(KUBELOOP)
    for name, each in results.items():
        cells = []
        for field in columns.values():
            value: float = getattr(each, field)
            times = "" if ours is None or ours is each else f" [dim](x{value / getattr(ours, field):.1f})"
            cells.append(f"{value:.0f}{times}")
        table.add_row(name, *cells)
    for name, why in failed.items():
        table.add_row(name, f"[yellow]{why.strip().splitlines()[-1][:60]}")
    console.print(table)
