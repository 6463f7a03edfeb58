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
from tests.upstream.nodes.cluster import real_cluster


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream.nodes", description=__doc__)
    parser.add_argument("--output", type=Path, help="empty folder for logs and containers; default: a temporary one")
    parser.add_argument("--shell", action="store_true", help="open a shell in the node's namespaces instead, with KUBECONFIG set")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is ended
    home = (options.output or Path(tempfile.mkdtemp(prefix="kubeloop-nodes-"))).absolute()
    home.mkdir(parents=True, exist_ok=True)
    print(f"starting a node; the logs are in {home}", flush=True)
    try:
        with real_cluster(home) as cluster:
            command = ["env", f"KUBECONFIG={cluster.kubeconfig}", "sh"]
            if options.shell:
                print(f"from elsewhere: {shlex.join(cluster.namespaces.command(*command))}", flush=True)
            else:
                command = [sys.executable, "-m", "tests.upstream.nodes.checks", str(cluster.kubeconfig), "all"]
            return subprocess.run(cluster.namespaces.command(*command), env=cluster.environment).returncode
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
