"""``python -m tests.realserver run [PYTEST ARGUMENTS]``: build, start, run the server suites against it, stop.

Exit status: pytest's; 3 if there is no server to run against.
"""

from __future__ import annotations

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


def _on_a_server(programs: Path, command: list[str]) -> int:
    """The exit status of a command while a fresh server runs."""
    print("starting kube-apiserver and etcd", flush=True)
    with real_server(programs) as kubeconfig:
        environment = {"KUBELOOP_TEST_SERVER": "real", "KUBELOOP_TEST_KUBECONFIG": str(kubeconfig), "KUBECONFIG": str(kubeconfig)}
        return subprocess.call(command, env={**os.environ, **environment})


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
            return _on_a_server(programs, rest)
        suites = [rest] if rest else [_CONTROLLERS, [f"--ignore={path}" for path in _CONTROLLERS]]
        return max(_on_a_server(programs, [sys.executable, "-m", "pytest", "-q", "-m", "server", *suite]) for suite in suites)
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
