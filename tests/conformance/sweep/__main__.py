"""``python -m tests.conformance.sweep``: replay the sweep and print the score by kind; ``--record`` asks a real server."""

from __future__ import annotations

import argparse
import collections
import re
import sys
import tempfile
from pathlib import Path

from kubeloop.testing import LocalCluster
from tests.conformance.compare import Score, compare
from tests.conformance.recordings import files, load
from tests.conformance.scenario import write_tokens
from tests.conformance.sweep.known import numbers, update
from tests.conformance.sweep.recording import record, replay
from tests.conformance.sweep.script import resources, title
from tests.conformance.wire import Server


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.sweep", description=__doc__)
    parser.add_argument("kind", nargs="*", help="only scenarios whose name holds this")
    parser.add_argument("--limit", type=int, default=0, help="differences to show per step (default: none)")
    parser.add_argument("--classes", action="store_true", help="group differences by what differs, most frequent first")
    parser.add_argument("--update", action="store_true", help="rewrite differences.yaml; new ones have no reason yet")
    parser.add_argument("--record", metavar="URL", help="ask the real server at this address, and write recordings")
    parser.add_argument("--ca", help="its authority")
    parser.add_argument("--tokens", type=Path, help="its token file")
    options = parser.parse_args()
    if options.record:
        server = Server(options.record, options.ca, options.tokens)
        for resource in resources():
            if not options.kind or any(part in title(resource) for part in options.kind):
                file = record(server, resource)
                steps = load(file)["steps"]
                good = sum(step["status"] < 300 for step in steps)
                print(f"{file.name}: {len(steps)} steps, {good} successful, {file.stat().st_size} bytes", flush=True)
        return 0
    scores = sweep(options.kind)
    if options.update:
        update({score.scenario: set(numbers(score.differences)) for score in scores})
    report(scores, options.limit, classes=options.classes)
    return 0 if scores else 2


def sweep(kinds: list[str]) -> list[Score]:
    """Replay the recordings whose names hold one of ``kinds`` (all if there are none) on a fresh server."""
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.csv"
        write_tokens(tokens)
        with LocalCluster(controllers=False, token_auth_file=tokens, disable_admission_plugins=()) as cluster:
            server = Server(cluster.url, str(cluster.ca_file), tokens)
            try:
                return _scores(server, kinds)
            finally:
                server.close()


def _scores(server: Server, kinds: list[str]) -> list[Score]:
    scores = []
    for file in files("sweep"):
        recording = load(file)
        if not kinds or any(part in recording["scenario"] for part in kinds):
            actual, _ = replay(server, recording)
            scores.append(compare(recording, actual))
    return scores


def report(scores: list[Score], limit: int = 0, *, classes: bool = False) -> None:
    """Print the score of each resource; ``limit``: differences to show per step; ``classes``: how often what differs."""
    total = Score("all")
    counts: collections.Counter[str] = collections.Counter()
    for score in scores:
        total.add(score)
        for step, differences in score.differences.items():
            if limit:
                print(f"{score.scenario} {step}: {len(differences)} differ")
                for difference in differences[:limit]:
                    print(f"    {difference}")
            counts[score.scenario.split("-")[-1] + " " + re.sub(r"\d+", "N", str(differences[0]))[:150]] += 1
    if classes:
        for name, count in counts.most_common(80):
            print(f"{count:5} {name}")
    for score in [*scores, total]:
        print(f"{score.scenario:60} {score.exact:5} of {score.steps:5}  {100 * score.exact / max(1, score.steps):5.1f} %")


if __name__ == "__main__":
    sys.exit(main())
