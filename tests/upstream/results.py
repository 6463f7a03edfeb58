"""Results of the conformance suite: ginkgo's reports, stored results, and the tables in docs/conformance.md."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.upstream.containers import need_of

STORED = Path(__file__).parent / "results"
#: Clusters by name, with the words that docs/conformance.md has for them.
CLUSTERS = {
    "simulated": "kubeloop's API server, controllers, scheduler and simulated nodes",
    "real-control-plane": "kubeloop's API server and simulated nodes, with the real kube-controller-manager and kube-scheduler",
    "real-kubelet": "kubeloop's API server, controllers and scheduler, with a real kubelet, containerd, kube-proxy and CoreDNS",
    "real-components": (
        "kubeloop's API server, with the real kube-controller-manager, kube-scheduler, kubelet, containerd, kube-proxy and CoreDNS"
    ),
    "process-pods": "kubeloop's API server, controllers and scheduler, with pods that run as processes",
}
#: The suite's own tag for specs that wait for five minutes and more.
SLOW = "[Slow]"
LEFT_OUT = "left out"
_DID_NOT_RUN = ("skipped", "pending")
_TAGS = re.compile(r" ?\[(sig-[a-z-]+|[A-Za-z]+(:[^]]*)?)\]")


@dataclass(frozen=True, slots=True)
class SpecResult:
    """The outcome of one spec: ``passed``, ``failed``, ``timedout``...; ``seconds`` that it took, and the first line of the failure.

    ``left out`` is a spec that did not run because the cluster lacks something that it needs, or because of its tags.
    """

    state: str
    seconds: float = 0.0
    message: str = ""


def read_report(file: Path) -> dict[str, SpecResult]:
    """Return the specs of ginkgo's JSON report that ran, by their full names."""
    results = {}
    for name, spec in _specs(file):
        if spec["State"] not in _DID_NOT_RUN:
            message = str((spec.get("Failure") or {}).get("Message", "")).strip()
            results[name] = SpecResult(spec["State"], round(spec["RunTime"] / 1e9, 1), message.split("\n")[0][:300])
    return results


def left_out(file: Path, cluster: str = "simulated") -> dict[str, SpecResult]:
    """Return the conformance specs of ginkgo's JSON report that did not run: the cluster cannot pass them, or they are slow."""
    names = [name for name, spec in _specs(file) if spec["State"] in _DID_NOT_RUN and "[Conformance]" in name]
    return {name: SpecResult(LEFT_OUT) for name in names if need_of(name, cluster) or SLOW in name}


def _specs(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for suite in json.loads(file.read_bytes()):
        for spec in suite["SpecReports"] or ():
            if spec["LeafNodeType"] == "It":
                yield " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]]), spec


def load(cluster: str) -> dict[str, SpecResult]:
    """Return the stored results of a cluster; none if it was never tried."""
    file = STORED / f"{cluster}.json"
    if not file.exists():
        return {}
    return {name: SpecResult(state, 0.0, message) for name, (state, message) in json.loads(file.read_text()).items()}


def store(cluster: str, results: Mapping[str, SpecResult]) -> None:
    """Add results to those stored for a cluster: a run may have been of some specs only. Specs that are left out keep older results."""
    before = load(cluster)
    merged = before | {name: result for name, result in results.items() if result.state != LEFT_OUT or name not in before}
    rows: dict[str, Any] = {name: [result.state, _first_words(result.message)] for name, result in sorted(merged.items())}
    STORED.mkdir(exist_ok=True)
    (STORED / f"{cluster}.json").write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items()) + "\n}\n")


def regressions(before: Mapping[str, SpecResult], after: Mapping[str, SpecResult]) -> list[str]:
    """Return the names of specs that passed before and do not now."""
    return sorted(name for name, result in after.items() if result.state != "passed" and name in before and before[name].state == "passed")


def summary(results: Mapping[str, SpecResult], cluster: str = "simulated") -> dict[str, tuple[int, int]]:
    """Return how many specs of each group passed, and how many there are that the cluster can pass.

    Args:
        results: The specs.
        cluster: The cluster's name. A spec that passed counts, even if it needs something that the cluster lacks.
    """
    groups: dict[str, tuple[int, int]] = {}
    for name, result in results.items():
        if _needs_more(name, result, cluster) is None:
            group = group_of(name)
            passed, ran = groups.get(group, (0, 0))
            groups[group] = (passed + (result.state == "passed"), ran + 1)
    return dict(sorted(groups.items()))


def group_of(name: str) -> str:
    """Return the special interest group that a spec's name begins with, such as ``apps``."""
    match = re.match(r"\[sig-([a-z-]+)\]", name)
    return match[1] if match else "other"


def section() -> list[str]:
    """Return the lines of docs/conformance.md on the suite: what passed by group, and every spec. Empty if nothing is stored."""
    stored = {cluster: results for cluster in CLUSTERS if (results := load(cluster))}
    if not stored:
        return []
    groups = [summary(results, cluster) for cluster, results in stored.items()]
    names = sorted({group for counts in groups for group in counts})
    rows = [[group, *(_share(counts.get(group)) for counts in groups)] for group in names]
    totals = [_share((sum(passed for passed, _ in counts.values()), sum(ran for _, ran in counts.values()))) for counts in groups]
    specs = sorted({name for results in stored.values() for name in results})
    return [
        "",
        "## Kubernetes' conformance suite",
        "",
        "`make conformance-upstream` builds the conformance suite of Kubernetes 1.36.3 from source and runs it against a cluster:",
        "",
        *(f"- **{cluster}**: {CLUSTERS[cluster]}." for cluster in stored),
        "",
        "The first table counts the specs that a cluster can pass. The others need something that its nodes lack, which the second table",
        "counts (`tests/upstream/containers.yaml`, `process_pods.yaml`). With simulated nodes, `[Slow]` specs are left out too, which wait",
        "for more than five minutes. `python -m tests.upstream --cluster NAME --store` renews a column, and",
        "`python -m tests.upstream.nodes --conformance --store` that of real-kubelet ([real nodes](real-nodes.md)), or with",
        "`--real-control-plane` that of real-components.",
        "",
        *_table(["group", *stored], [*rows, ["**all**", *totals]]),
        "",
        *_missing(stored),
        *_table(
            ["spec", *stored],
            [[_title(name), *(_cell(name, results.get(name), cluster) for cluster, results in stored.items())] for name in specs],
        ),
    ]


def _missing(stored: Mapping[str, Mapping[str, SpecResult]]) -> list[str]:
    """Return the table of what nodes lack, with the number of specs of each cluster that did not pass for that reason."""
    counts = {cluster: count_needs(results, cluster) for cluster, results in stored.items()}
    lacking = [cluster for cluster, needs in counts.items() if needs]
    needs = dict.fromkeys(need for cluster in lacking for need in counts[cluster])
    rows = [[need, *(str(counts[cluster].get(need) or "") for cluster in lacking)] for need in needs]
    return [*_table(["specs that need", *lacking], rows), ""] if lacking else []


def count_needs(results: Mapping[str, SpecResult], cluster: str) -> Counter[str]:
    """Return how many specs did not pass because they need something that a cluster's nodes lack, the most frequent need first."""
    found = Counter(need for name, result in results.items() if result.state != "passed" and (need := need_of(name, cluster)))
    return Counter(dict(found.most_common()))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def _share(counts: tuple[int, int] | None) -> str:
    return f"{counts[0]} of {counts[1]}" if counts is not None else ""


def _title(name: str) -> str:
    """Return a spec's name without its tags, after its group."""
    return _escaped(f"{group_of(name)}: {_TAGS.sub('', name).strip()}")


def _needs_more(name: str, result: SpecResult, cluster: str) -> str | None:
    """Return what a spec that did not pass needs; None if it passed, or if the cluster suffices."""
    if result.state == "passed":
        return None
    if (need := need_of(name, cluster)) is not None:
        return f"needs {need}"
    return "left out: slow" if result.state == LEFT_OUT else None


def _cell(name: str, result: SpecResult | None, cluster: str) -> str:
    if result is None:
        return "not run"
    if result.state == "passed":
        return "passed"
    return _needs_more(name, result, cluster) or f"failed: {_escaped(_first_words(result.message))}"


def _first_words(message: str) -> str:
    """Shorten a failure, and leave out what differs in each run: addresses, times and random names."""
    text = re.sub(r"0x[0-9a-f]+|\b\d+(\.\d+)?(s|ms|µs)\b|\b[a-z-]+-\d{3,5}\b|127\.0\.0\.1:\d+", "...", message)
    return text[:120]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
