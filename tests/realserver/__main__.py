"""``python -m tests.realserver run [PYTEST ARGUMENTS]``: build, start, run the server suites against it, stop.

Without arguments also what needs Kubernetes' own kube-controller-manager or Helm, on the real server and on the embedded one.

Exit status: pytest's; 3 if there is no server to run against.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from tests.realserver.building import CannotBuild, binaries
from tests.realserver.serving import real_server

_USAGE = "usage: python -m tests.realserver run [PYTEST ARGUMENTS] | build | shell COMMAND..."


#: Suites in which controllers run, on a server of their own: nothing ends the namespaces that others leave on a real server, and what is in
#: them would keep controllers busy.
_CONTROLLERS = ["tests/controlplane", "tests/controller"]

#: Suites in which upstream's controllers work, beside our own scheduler and node: what ours do too, and what only theirs do.
_UPSTREAM = [
    *(
        f"tests/controlplane/test_{name}.py"
        for name in ("deployment", "replicaset", "garbage_collector", "namespace", "rollouts_by_kubectl", "upstream")
    ),
    # Ours only: upstream's collector learns of kinds every 30 seconds, and of one that came and went meanwhile never.
    "--deselect=tests/controlplane/test_garbage_collector.py::test_dependents_go_with_the_definition_of_their_owners_kind",
]

#: On a server of its own again: two of upstream's controllers would work at once, and Helm's chart meets what others left.
_HELM = ["tests/foreign/test_helm.py"]

#: Programs that Go builds for the embedded server.
_EMBEDDED_ONLY = ["tests/foreign/test_chart.py", "tests/foreign/test_kwok.py"]


#: Tests of a file stay together, and each worker has a server of its own: what is in one is nobody else's.
_WORKERS = min(os.cpu_count() or 1, 4)
_IN_WORKERS = [f"--numprocesses={_WORKERS}", "--dist=loadfile"]


def _on_servers(programs: Path, command: list[str], count: int = 1, **also: str) -> int:
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


def _all(programs: Path) -> int:
    """The worst exit status of all suites."""
    others = [f"--ignore={path}" for path in _CONTROLLERS]
    found = [_on_servers(programs, _pytest(*_IN_WORKERS, *suite), _WORKERS) for suite in (_CONTROLLERS, others)]
    binaries(["kube-controller-manager"])
    upstream = {"KUBELOOP_TEST_CONTROLLERS": "upstream"}
    for suite, count in (([*_IN_WORKERS, *_UPSTREAM], _WORKERS), (_HELM, 1)):
        found.append(_on_servers(programs, _pytest(*suite), count, **upstream))
        print("the same on the embedded server", flush=True)
        found.append(subprocess.call(_pytest(*suite), env={**os.environ, **upstream}))
    # What they leave behind is compared with what was recorded where they ran beside a real server.
    found.append(subprocess.call(_pytest("tests/conformance/test_with_controllers.py", which="upstream"), env={**os.environ, **upstream}))
    print("a new operator's chart by Helm, and kwok as the kubelet, on the embedded server", flush=True)
    found.append(subprocess.call(_pytest(*_EMBEDDED_ONLY, which="upstream"), env={**os.environ, **upstream}))
    return max(found)


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in ("run", "build", "shell"):
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
        return _on_servers(programs, _pytest(*rest)) if rest else _all(programs)
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
