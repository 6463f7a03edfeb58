"""``python -m tests.realserver run [PYTEST ARGUMENTS]``: build, start, run the server suites against it, stop.

Exit status: pytest's; 3 if there is no server to run against.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.realserver.building import CannotBuild, binaries
from tests.realserver.serving import real_server

_USAGE = "usage: python -m tests.realserver run [PYTEST ARGUMENTS] | build | shell COMMAND..."


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
        print("starting kube-apiserver and etcd", flush=True)
        with real_server(programs) as kubeconfig:
            environment = {**os.environ, "KUBELOOP_TEST_SERVER": "real", "KUBELOOP_TEST_KUBECONFIG": str(kubeconfig)}
            if verb == "shell":
                return subprocess.call(rest, env={**environment, "KUBECONFIG": str(kubeconfig)})
            return subprocess.call([sys.executable, "-m", "pytest", "-q", "-m", "server", *rest], env=environment)
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
