"""``python -m tests.upstream.nodes``: starts a real node beside kubeloop's server, and checks what it does for users."""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.realserver.building import CannotBuild
from tests.upstream.__main__ import _programs as suite_programs
from tests.upstream.nodes.cluster import RealCluster, real_cluster
from tests.upstream.nodes.suite import judge, name_of, run_suite

#: The suite's own words for specs that wait for minutes or disturb all others.
_LONG = r"\[Serial\]|\[Disruptive\]|\[Slow\]"


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream.nodes", description=__doc__)
    parser.add_argument("--output", type=Path, help="empty folder for logs and containers; default: a temporary one")
    parser.add_argument("--nodes", type=int, default=1, help="number of nodes")
    parser.add_argument(
        "--real-control-plane", action="store_true", help="run the real controller manager and scheduler in place of kubeloop's"
    )
    parser.add_argument("--shell", action="store_true", help="open a shell in the node's namespaces instead, with KUBECONFIG set")
    parser.add_argument("--conformance", action="store_true", help="run Kubernetes' conformance suite instead of the checks")
    parser.add_argument("--focus", action="append", default=[], metavar="REGEX", help="with --conformance: only matching specs; repeatable")
    parser.add_argument("--skip", default=_LONG, metavar="REGEX", help=f"with --conformance: leave out matching specs; default: {_LONG}")
    parser.add_argument("--processes", type=int, default=4, help="with --conformance: specs that run at once; most of them wait")
    parser.add_argument("--minutes", type=int, default=180, help="with --conformance: limit of the run")
    parser.add_argument("--store", action="store_true", help="with --conformance: store the results, and write docs/conformance.md")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is ended
    home = (options.output or Path(tempfile.mkdtemp(prefix="kubeloop-nodes-"))).absolute()
    home.mkdir(parents=True, exist_ok=True)
    print(f"starting a node; the logs are in {home}", flush=True)
    try:
        if options.conformance:
            suite_programs(real=False)  # a build may take long: before the cluster starts
        with real_cluster(home, nodes=options.nodes, real_control_plane=options.real_control_plane) as cluster:
            return _run(cluster, options)
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 1


def _run(cluster: RealCluster, options: argparse.Namespace) -> int:
    if options.conformance:
        report = run_suite(
            cluster,
            suite_programs(real=False).absolute(),
            focus=options.focus,
            skip=options.skip,
            processes=options.processes,
            minutes=options.minutes,
        )
        return judge(report, name_of(real_control_plane=options.real_control_plane), store=options.store)
    command = [sys.executable, "-m", "tests.upstream.nodes.checks", str(cluster.kubeconfig), "all"]
    if options.shell:
        command = ["env", f"KUBECONFIG={cluster.kubeconfig}", "sh"]
        print(f"from elsewhere: {shlex.join(cluster.namespaces.command(*command))}", flush=True)
    return subprocess.run(cluster.namespaces.command(*command), env=cluster.environment).returncode


if __name__ == "__main__":
    sys.exit(main())
