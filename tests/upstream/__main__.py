"""``make conformance-upstream``: builds Kubernetes' conformance suite from source and runs it against the embedded server."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.counted import DOCUMENT, document
from tests.realserver.building import NO_GO, CannotBuild, binaries, build, directory
from tests.upstream import results
from tests.upstream.clusters import CLUSTERS, cluster
from tests.upstream.containers import patterns

SOURCES = Path(__file__).parent / "go"
#: Program, go's verb, package.
_PROGRAMS = {
    "ginkgo": (["build"], "github.com/onsi/ginkgo/v2/ginkgo"),
    "kubectl": (["build"], "k8s.io/kubernetes/cmd/kubectl"),
    "e2e.test": (["test", "-c", "-vet=off"], "k8s.io/kubernetes/test/e2e"),
}
#: Runs of the suite, by the groups of specs that each has. The runs work at once, each against its own cluster: most specs wait, and
#: [Serial] specs wait one after the other. Results are stored after each run.
_RUNS = {
    "api": "api-machinery|architecture|auth|cli|instrumentation",
    "workloads": "apps|scheduling",
    "nodes": "network|node|storage",
}


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    parser.add_argument("--cluster", choices=CLUSTERS, default="simulated", help="the cluster to test")
    parser.add_argument("--run", action="append", choices=_RUNS, help="only these groups of specs; may be repeated")
    parser.add_argument("--focus", action="append", default=[], metavar="REGEX", help="run matching specs only; may be repeated")
    parser.add_argument("--slow", action="store_true", help="also run specs that wait for more than five minutes")
    parser.add_argument(
        "--containers", action="store_true", help="also run specs that need more than the nodes have: they wait for minutes, and fail"
    )
    parser.add_argument("--processes", type=int, help="specs of a run that run at once (3; process-pods: 1); most of them wait")
    parser.add_argument("--minutes", type=int, help="limit of each run (20; process-pods: 60); specs that have not ended then have failed")
    parser.add_argument("--output", type=Path, help="folder for logs and ginkgo's reports; default: a temporary one")
    parser.add_argument("--store", action="store_true", help="store the results, and write docs/conformance.md")
    options = parser.parse_args()
    # Pods of two specs may listen on the same port of all addresses, which process pods share.
    processes, minutes = (1, 60) if options.cluster == "process-pods" else (3, 20)
    options.processes, options.minutes = options.processes or processes, options.minutes or minutes
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster's processes are ended
    home = (options.output or Path(tempfile.mkdtemp(prefix="kubeloop-conformance-"))).absolute()
    statuses = []
    try:
        programs = _programs(real=options.cluster == "real-control-plane")
        with contextlib.ExitStack() as running:
            runs = [running.enter_context(_run(run, programs, home / run, options)) for run in options.run or _RUNS]
            for run in runs:
                run.process.wait()
                statuses.append(_judge(run, options))
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 1
    return max(statuses)


def _programs(*, real: bool) -> Path:
    """Return the folder of the programs, built now if they are not there."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(SOURCES.iterdir()))).hexdigest()[:12]
    target = directory() / f"upstream-{digest}"
    missing = [name for name in _PROGRAMS if not (target / name).is_file()]
    go = shutil.which("go") if missing else ""
    if go is None:
        raise CannotBuild(NO_GO)
    target.mkdir(parents=True, exist_ok=True)
    for name in missing:
        verb, package = _PROGRAMS[name]
        build(go, verb, package, target / name, SOURCES)
    for name in ("kube-controller-manager", "kube-scheduler") if real else ():
        if not (target / name).exists():
            (target / name).symlink_to((binaries([name]) / name).absolute())
    return target


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of ginkgo, with its folder for logs and the report."""

    process: subprocess.Popen[bytes]
    home: Path
    started: float


@contextlib.contextmanager
def _run(name: str, programs: Path, home: Path, options: argparse.Namespace) -> Iterator[_Run]:
    """Start a cluster and one run of the suite; both end with the context."""
    home.mkdir(parents=True, exist_ok=True)
    with cluster(options.cluster, programs, home) as running, (home / "suite.log").open("w") as log:
        print(f"running the conformance suite ({name}); its log is {home / 'suite.log'}", flush=True)
        environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        command = [*running.prefix, *_command(name, programs, running.kubeconfig, home, options)]
        suite = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=home, env=environment)
        try:
            yield _Run(suite, home, time.monotonic())
        finally:
            suite.terminate()  # ginkgo ends its processes
            suite.wait()


def _command(name: str, programs: Path, kubeconfig: Path, home: Path, options: argparse.Namespace) -> list[str]:
    focus = [rf"\[sig-({_RUNS[name]})\].*({regex})" for regex in options.focus or [""]]
    skipped = [*([] if options.containers else patterns(options.cluster)), *([] if options.slow else [re.escape(results.SLOW)])]
    return [
        str(programs / "ginkgo"), f"--procs={options.processes}", "--label-filter=Conformance", *(f"--skip={regex}" for regex in skipped),
        *(f"--focus={regex}" for regex in focus), "--no-color", "--silence-skips", f"--timeout={options.minutes}m",
        f"--output-dir={home}", "--json-report=report.json", "--keep-going", str(programs / "e2e.test"), "--",
        f"--kubeconfig={kubeconfig}", "--provider=skeleton", "--allowed-not-ready-nodes=-1", "--minStartupPods=-1",
        f"--kubectl-path={programs / 'kubectl'}", "--dump-logs-on-failure=false",
    ]  # fmt: skip


def _judge(run: _Run, options: argparse.Namespace) -> int:
    report = run.home / "report.json"
    if not report.exists():
        print(f"the suite made no report; see {run.home / 'suite.log'}", file=sys.stderr)
        return 1
    found = results.read_report(report)
    passed = sum(result.state == "passed" for result in found.values())
    for group, (good, ran) in results.summary(found, options.cluster).items():
        print(f"{group:20} {good:4} of {ran}")
    print(f"{'all':20} {passed:4} of {len(found)} in {time.monotonic() - run.started:.0f} s")
    worse = results.regressions(results.load(options.cluster), found)
    for name in worse:
        print(f"failed, and passed before: {name}\n    {found[name].message}", file=sys.stderr)
    if options.store:
        results.store(options.cluster, found | results.left_out(report, options.cluster))
        DOCUMENT.write_text(document())
    return 1 if worse or not (found or options.focus) else 0


if __name__ == "__main__":
    sys.exit(main())
