"""``python -m tests.conformance``: replay the scenarios on the embedded server and print the score, by scenario."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kubeloop.testing import LocalCluster
from tests.conformance import recordings
from tests.conformance.compare import Score, compare
from tests.conformance.counted import DOCUMENT, document
from tests.conformance.recorder import record
from tests.conformance.scenario import Run, scenarios, write_tokens
from tests.conformance.servers import COMPACT
from tests.conformance.sweep.__main__ import report as report_sweep
from tests.conformance.sweep.__main__ import sweep
from tests.conformance.wire import Server
from tests.realserver.controller_manager import controller_manager, own_controllers
from tests.realserver.kube_scheduler import kube_scheduler
from tests.servers import ServerUnderTest

HERE = Path(__file__).parent
#: Seconds until a step that waits for something gives up; with controllers as long as when it was recorded.
_PATIENCE = {"plain": 5.0, "with-controllers": 15.0, "with-scheduler": 15.0}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("scenario", nargs="*", help="only scenarios whose name begins so")
    parser.add_argument("--set", default="plain", choices=list(_PATIENCE), help="which set of scenarios (default: plain)")
    parser.add_argument(
        "--upstream",
        action="store_true",
        help="with the real kube-controller-manager (and kube-scheduler) instead of kubeloop's controllers",
    )
    parser.add_argument("--record", action="store_true", help="record the set from a real server (not plain; needs Go)")
    parser.add_argument("--ignore", action="append", default=[], help="leave out paths that hold this key, such as managedFields")
    parser.add_argument("--limit", type=int, default=0, help="differences to show per step (default: none)")
    parser.add_argument("--json", type=Path, help="write the score as JSON to this file")
    parser.add_argument("--document", action="store_true", help="only rewrite docs/conformance.md, from differences.yaml")
    options = parser.parse_args()
    if options.document:
        DOCUMENT.write_text(document())
        return 0
    if options.record:
        if options.set == "plain":
            parser.error("the set plain is recorded by hand; see README.md")
        unexpected = record(options.set, tuple(options.scenario), HERE / "scenarios" / options.set)
        print("\n".join(unexpected))
        return 1 if unexpected else 0
    scores, surprises, took = replay(options.set, tuple(options.scenario), tuple(options.ignore), upstream=options.upstream)
    report(scores, surprises, options.limit, took)
    swept = sweep([]) if options.set == "plain" and not options.scenario else []
    if swept:
        report_sweep(swept)
    if options.json:
        rows = {
            s.scenario: {"steps": s.steps, "exact": s.exact, "status": s.right_status, "leaves": s.leaves, "matching": s.matching}
            for s in [*scores, *swept]
        }
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if scores else 2


def replay(
    which: str, only: tuple[str, ...], ignore: tuple[str, ...], *, upstream: bool = False, exactly: bool = False
) -> tuple[list[Score], list[str], float]:
    """Runs the scenarios one after the other on one fresh server; gives scores, surprises, and seconds taken.

    ``upstream``: the controllers are those of the real kube-controller-manager, and the scheduler of ``with-scheduler`` is kube-scheduler.
    ``exactly``: ``only`` has names of scenarios, not how they begin.
    No set has kubelets, and only that set has a scheduler, as when the answers were recorded.
    """
    scores: list[Score] = []
    surprises: list[str] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.csv"
        write_tokens(tokens)
        with contextlib.ExitStack() as stack:
            cluster = stack.enter_context(LocalCluster(False, token_auth_file=tokens, disable_admission_plugins=()))
            tested = ServerUnderTest(cluster.kubeconfig, cluster)
            if upstream:
                stack.enter_context(controller_manager(tested))
                if which == "with-scheduler":
                    stack.enter_context(kube_scheduler(cluster.kubeconfig))
            elif which != "plain":
                stack.enter_context(own_controllers(tested, scheduler=which == "with-scheduler"))
            server = Server(cluster.url, str(cluster.ca_file), tokens, COMPACT)
            for name, scenario in scenarios(HERE / "scenarios" / which):
                if only and (name not in only if exactly else not name.startswith(only)):
                    continue
                run = Run(server, scenario, name, _PATIENCE[which])
                actual = run.run()
                surprises += run.surprises
                expected = recordings.load(recordings.path_of(which, name))
                scores.append(compare(expected, actual, ignore))
            server.close()
    return scores, surprises, time.monotonic() - began


def report(scores: list[Score], surprises: list[str], limit: int, took: float) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
    total = Score("all")
    table = Table("scenario", "exact steps", "right status", "equal leaves", box=None, pad_edge=False)
    for score in scores:
        total.add(score)
    for score in [*scores, total]:
        if score.steps:
            table.add_row(
                score.scenario,
                f"{score.exact}/{score.steps}",
                f"{score.right_status}/{score.steps}",
                f"{100 * score.matching / max(1, score.leaves):.1f} %",
                style="bold" if score is total else "green" if score.exact == score.steps else None,
            )
    if limit:
        for score in scores:
            for step, differences in score.differences.items():
                console.print(f"{score.scenario} {step}: {len(differences)} differ", markup=False)
                for difference in differences[:limit]:
                    console.print(f"    {difference}", markup=False, soft_wrap=True)
        for surprise in surprises:
            console.print("surprise:", surprise, markup=False, soft_wrap=True)
    console.print(table)
    console.print(
        f"{len(scores)} scenarios, {total.steps} steps: {total.exact} exact ({100 * total.exact / max(1, total.steps):.1f} %), "
        f"{total.right_status} with the right status ({100 * total.right_status / max(1, total.steps):.1f} %), {took:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
