"""Formats generated text with ruff if it is installed; without it lines are longer, but the text is as valid. ``same`` ignores format."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

_LENGTH = 120


def formatted(files: Mapping[str, str]) -> dict[str, str]:
    """Return the same files, formatted in one run. Never fails without a formatter."""
    beside = Path(sys.executable).with_name("ruff")
    ruff = str(beside) if beside.exists() else shutil.which("ruff")
    if ruff is None:
        return dict(files)
    with tempfile.TemporaryDirectory(prefix="kubeloop-") as name:
        folder = Path(name)
        for path, text in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        command = [ruff, "format", "--isolated", "--no-cache", "--quiet", "--line-length", str(_LENGTH), str(folder)]
        if subprocess.run(command, check=False, capture_output=True).returncode:  # noqa: S603 - a formatter, found above
            return dict(files)
        return {path: (folder / path).read_text(encoding="utf-8") for path in files}


def same(left: str, right: str) -> bool:
    """Whether two modules differ only in format."""
    if left == right:
        return True
    try:
        return ast.dump(ast.parse(left)) == ast.dump(ast.parse(right))
    except SyntaxError:
        return False
