"""``kubeloop envtest-assets``: writes the programs that envtest starts, as launchers of this Python environment."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

PROGRAMS: Final = ("etcd", "kube-apiserver", "kubectl")
_MODULES: Final = {"etcd": "etcd", "kube-apiserver": "apiserver", "kubectl": "kubectl"}
#: A line of each launcher that identifies it.
_MARK: Final = "# A launcher of kubeloop (kubeloop envtest-assets). It is replaced when that command runs again."
#: Seconds within which a launcher must answer --version.
_TRIAL: Final = 60.0


@click.command("envtest-assets", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def envtest_assets(directory: Path) -> None:
    """Write kube-apiserver, etcd and kubectl into DIRECTORY, for envtest of controller-runtime.

    KUBEBUILDER_ASSETS=DIRECTORY go test ./... then runs on kubeloop's embedded server. The launchers use this Python environment.
    """
    if os.name != "posix":
        raise click.ClickException("the launchers are shell scripts; on Windows, run the Go tests in WSL")
    directory = directory.absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in PROGRAMS:
            _check_replaceable(directory / name)
        for name in PROGRAMS:
            _write(directory / name, launcher(name, directory, sys.executable))
    except OSError as error:
        raise click.ClickException(f"{directory}: {error.strerror or error}; name a directory that you may write") from None
    for name in ("etcd", "kube-apiserver"):
        _try(directory / name)
    click.echo(f"wrote {', '.join(PROGRAMS)} in {directory}", err=True)
    click.echo(f"export KUBEBUILDER_ASSETS={shlex.quote(str(directory))}")


def launcher(name: str, directory: Path, interpreter: str) -> str:
    """Return the shell script that runs a program of ``PROGRAMS`` with the given Python interpreter."""
    # ``exec`` leaves one process, which gets the signals of envtest; ``-P`` keeps the Go project's folder out of Python's path.
    arguments = f"{shlex.quote(str(directory))} " if name == "kubectl" else ""
    return f'#!/bin/sh\n{_MARK}\nexec {shlex.quote(interpreter)} -P -m kubeloop.envtest.{_MODULES[name]} {arguments}"$@"\n'


def _check_replaceable(path: Path) -> None:
    """Check that a file may be replaced. Raises ClickException for a file that this command did not write, such as a real binary."""
    if path.is_dir() or (path.exists() and _MARK.encode() not in path.read_bytes()[:4096]):
        raise click.ClickException(f"{path} exists and is not a launcher of kubeloop, so it is left as it is; name another directory")


def _write(path: Path, text: str) -> None:
    """Write a launcher atomically: a test that starts meanwhile finds the old launcher or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        Path(temporary).chmod(0o755)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _try(path: Path) -> None:
    """Run a launcher with ``--version``, to check that it finds this Python environment and the libraries of the server.

    Raises:
        ClickException: The launcher does not start.
    """
    command = [str(path), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TRIAL)  # noqa: S603 - written just now
    if done.returncode:
        raise click.ClickException(f"{path} does not start: {done.stderr.strip()[-2000:]}")
