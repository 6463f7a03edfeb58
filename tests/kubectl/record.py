"""Records transcripts again from a real API server: ``python -m tests.kubectl.record KUBECONFIG [NAME ...]``.

Each runs in a fresh namespace. A transcript is only as right as the server: never record from the embedded one.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import uuid
from pathlib import Path

from tests.kubectl.runner import kubectl_binary
from tests.kubectl.transcript import Session, parse, written

FOLDER = Path(__file__).parent / "transcripts"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kubectl.record", description=__doc__)
    parser.add_argument("kubeconfig", type=Path)
    parser.add_argument("name", nargs="*", help="only transcripts whose name begins so")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        for path in sorted(FOLDER.rglob("*.txt")):
            if not options.name or path.name.startswith(tuple(options.name)):
                record(path, options.kubeconfig.absolute(), Path(home))
                print(f"recorded {path.name}", flush=True)


def record(path: Path, kubeconfig: Path, home: Path) -> None:
    namespace = f"transcript-{uuid.uuid4().hex[:8]}"
    kubectl = [kubectl_binary(), "--kubeconfig", str(kubeconfig)]
    subprocess.run([*kubectl, "create", "namespace", namespace], check=True, capture_output=True)
    # A controller does it, where one runs; without it no pod may be created.
    subprocess.run([*kubectl, "--namespace", namespace, "create", "serviceaccount", "default"], check=False, capture_output=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            parts = list(Session(kubeconfig, namespace, home, Path(folder)).play(parse(path.read_text())))
        path.write_text(written(parts))
    finally:
        subprocess.run([*kubectl, "delete", "namespace", namespace, "--wait=false"], check=True, capture_output=True)


if __name__ == "__main__":
    main()
