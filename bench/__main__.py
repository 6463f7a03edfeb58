"""``python -m bench``: kubeloop's public informer beside lightkube and client-go, one at a time, in interleaved rounds."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path

from rich.console import Console

from bench import prepare, report
from bench.goals import Figures, figures, informer_goals, start_goal
from bench.replay import JSON, PEERS, STARTERS, Replay, wait_quiet
from bench.server_rates import Rates, measure

#: Others may use this share of the machine while a client runs; above it we wait.
_QUIET = 0.15


def _arguments() -> argparse.Namespace:
    def setting(name: str, default: int) -> int:
        return int(os.environ.get(f"KUBELOOP_BENCH_{name}", default))

    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, epilog="KUBELOOP_BENCH_PODS, _EVENTS and _RUNS set the defaults."
    )
    parser.add_argument("--pods", type=int, default=setting("PODS", 10_000))
    parser.add_argument("--events", type=int, default=setting("EVENTS", 20_000))
    parser.add_argument("--runs", type=int, default=setting("RUNS", 3))
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a quiet machine before each run")
    parser.add_argument("--http-only", action="store_true", help="leave out the runs over TLS")
    parser.add_argument("--only", action="append", choices=[peer.name for peer in PEERS], help="these clients only (may be repeated)")
    parser.add_argument("--no-start", action="store_true", help="leave out the start of a process")
    parser.add_argument("--no-server", action="store_true", help="leave out the embedded server")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--judge", action="store_true", help="exit with status 1 if a goal is missed")
    return parser.parse_args()


def main() -> int:
    args = _arguments()
    console = Console()
    # Installed packages have their byte code; without it every start would measure the compiler.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    peers = [peer for peer in PEERS if not args.only or peer.name in args.only]
    starters = [] if args.no_start else [peer for peer in STARTERS if not args.only or peer.name in args.only]
    try:
        prepare.programs()
        if any(peer.name == "lightkube" for peer in peers):
            prepare.lightkube()
        data = prepare.pods(args.pods, args.events)
    except prepare.CannotPrepare as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    informers: dict[str, dict[str, Figures]] = {}
    with Replay(data) as replay:
        for how in ["HTTP"] if args.http_only else ["HTTP", "TLS"]:
            runs: dict[str, list[dict[str, JSON]]] = {peer.name: [] for peer in peers}
            for number in range(args.runs):
                for peer in peers:
                    share = wait_quiet(_QUIET, args.patience)
                    noisy = f", others use {share:.0%} of the machine" if share > _QUIET else ""
                    console.print(f"[dim]{how}, round {number + 1} of {args.runs}: {peer.name}{noisy}")
                    runs[peer.name].append(replay.run(peer, tls=how == "TLS"))
            informers[how] = {name: figures(each) for name, each in runs.items()}
        samples: dict[str, list[float]] = {peer.name: [] for peer in starters}
        for _ in range(2 * args.runs + 1):
            for peer in starters:
                samples[peer.name].append(replay.start(peer))
        starts = {name: statistics.median(each) for name, each in samples.items()}
    rates: Rates | None = None if args.no_server else measure(min(2000, args.pods))
    goals = [goal for how, found in informers.items() for goal in informer_goals(found, how)] + start_goal(starts)
    for how, found in informers.items():
        report.show_informers(console, f"{args.pods} pods, {args.events} events, {how}", found)
    if starts:
        report.show_starts(console, starts)
    if rates is not None:
        report.show_server(console, rates)
    if goals:
        report.show_goals(console, goals)
    if args.json:
        args.json.write_text(report.as_json(informers, starts, rates, goals))
    return 1 if args.judge and not all(goal.reached for goal in goals) else 0


if __name__ == "__main__":
    sys.exit(main())
