"""Output of the commands that generate a manifest: printed, written to a file, or compared with the file."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from kubeloop.meta.errors import ConfigError


def emit(text: str, out: Path | None, *, only_check: bool, source: str) -> None:
    """Print ``text``, write it to ``out``, or compare it with ``out``.

    Args:
        text: The manifest.
        out: The file. None: standard output.
        only_check: Compare, and write nothing.
        source: What the manifest is made from, for messages.

    Raises:
        ConfigError: The file differs, or cannot be written.
    """
    if out is None:
        if only_check:
            raise ConfigError("--check compares with a file: name it with --out")
        click.echo(text, nl=False)
        return
    if only_check:
        there = out.read_text(encoding="utf-8") if out.exists() else ""
        differences = list(difflib.unified_diff(there.splitlines(), text.splitlines(), str(out), "generated", lineterm=""))
        if differences:
            raise ConfigError(f"not what the {source} say; run again without --check:\n" + "\n".join(differences))
        click.echo(f"{out}: up to date")
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written: {error}") from error
    click.echo(f"{out}: written")
