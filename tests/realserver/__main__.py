"""``python -m tests.realserver run [PYTEST ARGUMENTS]``: build, start, run the server suites against it, stop.

Without arguments also what needs Kubernetes' own kube-controller-manager or Helm, on the real server and on the embedded one.
``short`` instead of ``run`` leaves out the suites that passed as they are: those of the server's own behaviour; and, if no source file
changed since, all others but those of our controllers. ``proxy`` runs kubectl's suite and the conformance scenarios through a
``kubeloop proxy`` in front of it: without rules, or with those of KUBELOOP_TEST_PROXY=rules.

Exit status: pytest's; 3 if there is no server to run against.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from xml.etree import ElementTree

from tests.foreign.building import is_installed
from tests.realserver import verified
from tests.realserver.building import CannotBuild, binaries
from tests.realserver.serving import real_server
from tests.realserver.verified import Group

_USAGE = "usage: python -m tests.realserver run [PYTEST ARGUMENTS] | short | proxy [PYTEST ARGUMENTS] | build | shell COMMAND..."


#: Suites in which controllers run, on a separate server: nothing ends the namespaces that others leave on a real server, and their
#: objects would keep controllers busy.
_CONTROLLERS = ["tests/controlplane", "tests/controller"]

#: Suites in which upstream's controllers work, beside our own scheduler and node.
_UPSTREAM = [
    *(
        f"tests/controlplane/test_{name}.py"
        for name in (
            "accounts_and_policies",
            "certificates",
            "daemonset_rollouts",
            "deployment",
            "disruption",
            "elected_program",
            "garbage_collector",
            "horizontal_server",
            "host_path_provisioner",
            "job_on_server",
            "namespace",
            "node_lifecycle",
            "quota",
            "replicaset",
            "replication_controller",
            "resource_claims",
            "role_aggregation",
            "rollouts_by_kubectl",
            "services",
            "statefulset_rollouts",
            "taint_eviction",
            "token_secrets",
            "volumes",
            "volumes_by_kubectl",
        )
    ),
    # Ours only: upstream's collector learns of kinds every 30 seconds, and never of a kind that came and went meanwhile.
    "--deselect=tests/controlplane/test_garbage_collector.py::test_dependents_go_with_the_definition_of_their_owners_kind",
]

#: On another server again: two of upstream's controllers would work at once, and Helm's chart meets what others left.
_BUILT_CLIENTS = [
    *(["tests/foreign/test_rust.py"] if is_installed("rust") else []),
    "tests/foreign/test_helm.py",
    "tests/foreign/test_bitcoin_operator.py",
]

#: Programs that Go builds for the embedded server.
_EMBEDDED_ONLY = ["tests/foreign/test_chart.py", "tests/foreign/test_kwok.py", "examples/bitcoin_operator/tests/test_manifests.py"]


#: One worker runs all tests of a file. Each worker has its own server, so tests of two files never share one.
_WORKERS = min(os.cpu_count() or 1, 4)
_IN_WORKERS = [f"--numprocesses={_WORKERS}", "--dist=loadfile", "--no-loadscope-reorder"]


@dataclass(frozen=True)
class _Suite:
    """Tests that run in one process of pytest, on real servers or on the embedded one."""

    title: str
    arguments: list[str]
    #: How many real servers run beside it; 0: the tests start embedded ones.
    servers: int = 0
    which: str = "server"
    #: Whether kube-controller-manager runs, and with some suites Helm, kwok or a program in Rust, which are built from source.
    upstream: bool = False

    def run(self, programs: Path, *options: str) -> int:
        """Run the tests; the exit status of pytest."""
        controllers = {"KUBELOOP_TEST_CONTROLLERS": "upstream"} if self.upstream else {}
        command = _pytest(*options, *self.arguments, which=self.which)
        if self.servers:
            return _on_servers(programs, command, self.servers, controllers)
        return subprocess.call(command, env={**os.environ, **controllers})


#: Suites of the server's own behaviour, and all others that talk to one.
_OF_THE_SERVER = _Suite("all other suites on a real server", [*_IN_WORKERS, *(f"--ignore={path}" for path in _CONTROLLERS)], _WORKERS)

_SUITES = [
    _Suite("our controllers on a real server", [*_IN_WORKERS, *_CONTROLLERS], _WORKERS),
    _OF_THE_SERVER,
    _Suite("upstream's controllers on a real server", [*_IN_WORKERS, *_UPSTREAM], _WORKERS, upstream=True),
    _Suite("upstream's controllers on the embedded server", [*_IN_WORKERS, *_UPSTREAM], upstream=True),
    _Suite("Helm, kube-controller-manager and Rust's client library on a real server", _BUILT_CLIENTS, 1, upstream=True),
    _Suite("Helm, kube-controller-manager and Rust's client library on the embedded server", _BUILT_CLIENTS, upstream=True),
    # What upstream's controllers leave behind is compared with what was recorded where they ran beside a real server.
    _Suite(
        "recordings with upstream's controllers",
        ["tests/conformance/test_with_controllers.py"],
        which="upstream",
        upstream=True,
    ),
    _Suite("a new operator's chart by Helm, and kwok as the kubelet", _EMBEDDED_ONLY, which="upstream", upstream=True),
]

#: The suites whose record is one.
_GROUPS = {Group.OTHERS: [_OF_THE_SERVER], Group.WITH_PROGRAMS: [suite for suite in _SUITES if suite.upstream]}


def _on_servers(programs: Path, command: list[str], count: int = 1, also: Mapping[str, str] = MappingProxyType({})) -> int:
    """The exit status of a command while fresh servers run."""
    with contextlib.ExitStack() as running:
        print(f"starting kube-apiserver and etcd{f', {count} of each' if count > 1 else ''}", flush=True)
        kubeconfigs = [str(running.enter_context(real_server(programs))) for _ in range(count)]
        environment = {
            "KUBELOOP_TEST_SERVER": "real",
            "KUBELOOP_TEST_KUBECONFIG": os.pathsep.join(kubeconfigs),
            "KUBECONFIG": kubeconfigs[0],
        }
        return subprocess.call(command, env={**os.environ, **environment, **also})


def _pytest(*arguments: str, which: str = "server") -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-m", which, *arguments]


def _all(programs: Path, leave_out: Collection[_Suite] = (), ignore: Collection[Path] = ()) -> int:
    """Run the suites, record the passing ones, and return the worst exit status.

    The last lines name the tests that failed: a log's end is often all that is left of it.

    Args:
        programs: The folder of kube-apiserver and etcd.
        leave_out: Suites that do not run. A group of them that runs in part is recorded as before.
        ignore: Files with tests of the server's own behaviour that passed as they are.
    """
    chosen = [suite for suite in _SUITES if suite not in leave_out]
    if any(suite.upstream for suite in chosen):
        binaries(["kube-controller-manager", "kube-scheduler"])
    statuses, failures = [], []
    with tempfile.TemporaryDirectory() as reports:
        for number, suite in enumerate(chosen):
            print(f"\n-- {suite.title}", flush=True)
            report = Path(reports, f"{number}.xml")
            statuses.append(suite.run(programs, f"--junitxml={report}", *(f"--ignore={path}" for path in ignore)))
            if statuses[-1]:
                failures += [f"{suite.title}: exit status {statuses[-1]}", *(f"  {name}" for name in _failed(report))]
    if failures:
        print("\nfailed:", *failures, sep="\n", flush=True)
    passed = [suite for suite, status in zip(chosen, statuses, strict=True) if not status]
    verified.store(
        of_the_server=_OF_THE_SERVER in passed,  # files that were left out had passed as they are
        groups=[group for group, members in _GROUPS.items() if all(suite in passed for suite in members)],
    )
    for suite in leave_out:
        print(f"left out, since it passed with kubeloop as it is (tests/realserver/verified.json): {suite.title}", flush=True)
    return max(statuses)


def _short(programs: Path) -> int:
    """Run what did not pass as it is."""
    leave_out = [suite for group, members in _GROUPS.items() if verified.is_unchanged(group) for suite in members]
    unchanged = verified.unchanged()
    if set(unchanged) != set(verified.files_with_tests()):
        leave_out = [suite for suite in leave_out if suite is not _OF_THE_SERVER]
    return _all(programs, leave_out, unchanged)


def _proxied(programs: Path, arguments: list[str]) -> int:
    """Run kubectl's suite and the conformance scenarios through a proxy. The scenarios start further servers, which know their users."""
    suites = ["tests/kubectl", "tests/conformance/test_scenarios.py"]
    command = _pytest(*(arguments or [*_IN_WORKERS, *suites]), which="not embedded and not upstream")
    mode = os.environ.get("KUBELOOP_TEST_PROXY") or "1"
    return _on_servers(programs, command, 1 if arguments else _WORKERS, {"KUBELOOP_TEST_PROXY": mode})


def _failed(report: Path) -> list[str]:
    """The tests that failed according to a JUnit report, each with the first line of the reason."""
    if not report.exists():
        return ["pytest wrote no report"]
    return [
        f"{case.get('classname')}.{case.get('name')}: {outcome.get('message', '').partition(chr(10))[0][:300]}"
        for case in ElementTree.parse(report).iter("testcase")
        for outcome in case
        if outcome.tag in ("failure", "error")
    ]


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in ("run", "short", "proxy", "build", "shell"):
        print(_USAGE, file=sys.stderr)
        return 2
    verb, *rest = arguments
    try:
        programs = binaries()
        if verb == "build":
            print(programs)
            return 0
        if verb == "shell":
            return _on_servers(programs, rest)
        if verb == "short":
            return _short(programs)
        if verb == "proxy":
            return _proxied(programs, rest)
        return _on_servers(programs, _pytest(*rest)) if rest else _all(programs)
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
