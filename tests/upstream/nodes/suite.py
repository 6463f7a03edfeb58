"""Kubernetes' conformance suite against a cluster with a real node: runs inside its namespaces, with the programs of tests/upstream."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.counted import DOCUMENT, document
from tests.upstream import results
from tests.upstream.nodes.cluster import RealCluster


def name_of(*, real_control_plane: bool) -> str:
    """Return the name of a cluster's results in docs/conformance.md."""
    return "real-components" if real_control_plane else "real-kubelet"


def run_suite(cluster: RealCluster, programs: Path, *, focus: Sequence[str], skip: str, processes: int, minutes: int) -> Path:
    """Run specs, and return ginkgo's report.

    Args:
        cluster: A running cluster.
        programs: The folder with ginkgo, e2e.test and kubectl.
        focus: Regular expressions; a spec that matches one of them runs. Empty: all.
        skip: Regular expression of specs that are left out.
        processes: Specs that run at once.
        minutes: Limit of the run; specs that have not ended then have failed.
    """
    report = cluster.home / "report.json"
    command = [
        str(programs / "ginkgo"), f"--procs={processes}", "--label-filter=Conformance", f"--skip={skip}",
        *(f"--focus={regex}" for regex in focus), "--no-color", "--silence-skips", f"--timeout={minutes}m",
        f"--output-dir={report.parent}", f"--json-report={report.name}", "--keep-going", str(programs / "e2e.test"), "--",
        f"--kubeconfig={cluster.kubeconfig}", "--provider=skeleton", "--allowed-not-ready-nodes=-1", "--minStartupPods=-1",
        f"--kubectl-path={programs / 'kubectl'}", "--dump-logs-on-failure=false",
    ]  # fmt: skip
    environment = {**cluster.environment, "PATH": f"{programs}:{cluster.environment['PATH']}"}
    print(f"running the conformance suite; its log is {cluster.home / 'suite.log'}", flush=True)
    with (cluster.home / "suite.log").open("w") as log:
        subprocess.run(cluster.namespaces.command(*command), stdout=log, stderr=subprocess.STDOUT, cwd=cluster.home, env=environment)
    return report


def judge(report: Path, name: str, *, store: bool) -> int:
    """Print the outcome by groups and each failure; return 1 if a spec that passed before failed, or if none ran."""
    if not report.exists():
        print(f"the suite made no report; see {report.with_name('suite.log')}", file=sys.stderr)
        return 1
    specs = results.read_report(report)
    for group, (passed, ran) in results.summary(specs, name).items():
        print(f"{group:20} {passed:4} of {ran}")
    worse = results.regressions(results.load(name), specs)
    for spec, result in specs.items():
        if result.state != "passed":
            print(f"failed{', and passed before' if spec in worse else ''}: {spec}\n    {result.message}")
    if store:
        results.store(name, specs)
        DOCUMENT.write_text(document())
    return 1 if worse or not specs else 0
