"""Writes realistic Pods, and status changes of them, as JSON lines. Deterministic by seed.

    python -m bench.pods --pods 10000 --events 20000 --out DIR

DIR/pods.jsonl    one Pod per line, in key order (namespace/name), as a list answers them
DIR/events.jsonl  one Pod per line: a later state of one of those pods, resourceVersions rising
DIR/info.json     counts, the list's resourceVersion, the last event's, byte sizes
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from bench.pods.cluster import Cluster
from bench.pods.words import LIST_RV


def generate(pods: int, events: int, out: Path, seed: int = 5, nodes: int = 500) -> dict[str, object]:
    out.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(seed, pods, nodes)
    dump = json.JSONEncoder(separators=(",", ":")).encode
    size = event_size = 0
    with (out / "pods.jsonl").open("w") as file:
        for i in range(pods):
            line = dump(cluster.pod(i))
            size += len(line)
            file.write(line + "\n")
    rng = random.Random(f"{seed}-events")
    rv = LIST_RV
    changes: dict[int, int] = {}
    with (out / "events.jsonl").open("w") as file:
        for _ in range(events):
            rv += rng.randint(1, 9)
            i = rng.randrange(pods)
            changes[i] = changes.get(i, -1) + 1
            line = dump(cluster.event(i, changes[i], rv))
            event_size += len(line)
            file.write(line + "\n")
    info: dict[str, object] = {
        "pods": pods,
        "events": events,
        "seed": seed,
        "nodes": nodes,
        "list_rv": str(LIST_RV),
        "last_rv": str(rv),
        "json_bytes_per_pod": round(size / max(1, pods), 1),
        "json_bytes_per_event": round(event_size / max(1, events), 1),
    }
    (out / "info.json").write_text(json.dumps(info, indent=1))
    return info


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    print(json.dumps(generate(args.pods, args.events, args.out, args.seed, args.nodes)))


if __name__ == "__main__":
    main()
