"""``make conformance-upstream``: builds Kubernetes' conformance suite from source and runs it against the embedded server."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.conformance.counted import DOCUMENT, document
from tests.realserver.building import NO_GO, CannotBuild, binaries, build, directory
from tests.upstream import results
from tests.upstream.clusters import cluster

SOURCES = Path(__file__).parent / "go"
#: Program, go's verb, package.
_PROGRAMS = {
    "ginkgo": (["build"], "github.com/onsi/ginkgo/v2/ginkgo"),
    "kubectl": (["build"], "k8s.io/kubernetes/cmd/kubectl"),
    "e2e.test": (["test", "-c", "-vet=off"], "k8s.io/kubernetes/test/e2e"),
}
#: The suite's own words for specs that wait for minutes or disturb all others.
_LONG = r"\[Serial\]|\[Disruptive\]|\[Slow\]"


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    parser.add_argument("--cluster", choices=results.CLUSTERS, default="simulated", help="the cluster to test")
    parser.add_argument("--focus", action="append", default=[], metavar="REGEX", help="run matching specs only; may be repeated")
    parser.add_argument("--skip", default=_LONG, metavar="REGEX", help=f"leave out matching specs; default: {_LONG}")
    parser.add_argument("--processes", type=int, default=4, help="specs that run at once; most of them wait")
    parser.add_argument("--output", type=Path, help="folder for logs and ginkgo's report; default: a temporary one")
    parser.add_argument("--store", action="store_true", help="store the results, and write docs/conformance.md")
    options = parser.parse_args()
    try:
        programs = _programs(real=options.cluster == "real-control-plane")
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster's processes are ended
    home = options.output or Path(tempfile.mkdtemp(prefix="kubeloop-conformance-"))
    home.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with cluster(options.cluster, programs, home.absolute()) as kubeconfig:
        _run_suite(programs, kubeconfig, home.absolute(), options)
    return _judge(home, options, time.monotonic() - started)


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


def _run_suite(programs: Path, kubeconfig: Path, home: Path, options: argparse.Namespace) -> None:
    command = [
        str(programs / "ginkgo"), f"--procs={options.processes}", "--label-filter=Conformance", f"--skip={options.skip}",
        *(f"--focus={focus}" for focus in options.focus), "--no-color", "--silence-skips", "--timeout=3h", f"--output-dir={home}",
        "--json-report=report.json", "--keep-going", str(programs / "e2e.test"), "--",
        f"--kubeconfig={kubeconfig}", "--provider=skeleton", "--allowed-not-ready-nodes=-1", "--minStartupPods=-1",
        f"--kubectl-path={programs / 'kubectl'}", "--dump-logs-on-failure=false",
    ]  # fmt: skip
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    print(f"running the conformance suite; its log is {home / 'suite.log'}", flush=True)
    with (home / "suite.log").open("w") as log:
        suite = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=home, env=environment)
        try:
            suite.wait()
        finally:
            suite.terminate()  # ginkgo ends its processes
            suite.wait()


def _judge(home: Path, options: argparse.Namespace, seconds: float) -> int:
    report = home / "report.json"
    if not report.exists():
        print(f"the suite made no report; see {home / 'suite.log'}", file=sys.stderr)
        return 1
    found = results.read_report(report)
    passed = sum(result.state == "passed" for result in found.values())
    for group, (good, ran) in results.summary(found).items():
        print(f"{group:20} {good:4} of {ran}")
    print(f"{'all':20} {passed:4} of {len(found)} in {seconds:.0f} s")
    worse = results.regressions(results.load(options.cluster), found)
    for name in worse:
        print(f"failed, and passed before: {name}\n    {found[name].message}", file=sys.stderr)
    if options.store:
        results.store(options.cluster, found)
        DOCUMENT.write_text(document())
    return 1 if worse or not found else 0


if __name__ == "__main__":
    sys.exit(main())
