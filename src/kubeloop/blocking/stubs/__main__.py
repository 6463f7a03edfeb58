"""``python -m kubeloop.blocking.stubs [--check]``: writes the generated files, or checks that they are up to date."""

from __future__ import annotations

import sys
from pathlib import Path

from kubeloop.blocking.stubs.module import generated

FOLDER = Path(__file__).parents[1]


def main(arguments: list[str]) -> int:
    stale = [name for name, text in generated().items() if (FOLDER / name).read_text() != text]
    if "--check" in arguments:
        sys.stdout.writelines(f"{FOLDER / name} is not what it would be if it were generated now\n" for name in stale)
        return 1 if stale else 0
    for name, text in generated().items():
        (FOLDER / name).write_text(text)
    sys.stdout.write(f"{len(stale)} files changed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
