"""Tutorials as programs: their console blocks run in order, and their source blocks are files of the repository.

A comment before a block says what it is::

    <!-- block: source FOLDER/FILE -->   a file of the tutorial; ``python -m tests.docs.tutorials`` copies the files into the page
    <!-- block: server -->               a command that runs until the end, and the last line that it prints at its start
    <!-- block: program -->              a command that runs until the end of its section, and lines that it prints
    <!-- block: output -->               further lines of that program
    <!-- block: file NAME -->            a file that the reader saves in the page's folder

Any other ``console`` block has commands and what they print. Files in the page's folder, such as ``/tmp/bitcoin/``,
are in a folder of the test.
``...`` in an output stands for any text; times, ages, addresses and the random parts of names are not compared.
"""

from __future__ import annotations

import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.docs.pages import ROOT

#: Seconds until a line appears, and until a command that reads prints what the page shows.
_PATIENCE = 30.0
_BLOCK = re.compile(r"(?:<!-- block: (?P<use>[^>]*?) -->\n)?^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_READS = re.compile(r"^(kubectl .*\b(get|logs|events|describe)\b|curl )")
_VARYING = [
    (re.compile(r"(?<=\b[DIWE])\d{4} \d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d\d\d\d-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+(:\d+)?\b"), "ADDRESS"),
    (re.compile(r"\b(\d+(\.\d+)?(ms|s|m))+\b"), "AGE"),
    # Lines of kubeloop tap: times, versions, sizes, timeouts; and names of pods.
    (re.compile(r"^ *\d+\.\d{3} +(?=#\d)", re.MULTILINE), ""),
    (re.compile(r"\brv \d+"), "rv VERSION"),
    (re.compile(r"(?<=\bresourceVersion=)[1-9]\d*"), "VERSION"),
    (re.compile(r"(?<=\btimeoutSeconds=)\d+"), "SECONDS"),
    (re.compile(r"\b\d+(\.\d+)? (ms|s|B|kB)(?!\w)"), "AMOUNT"),
    (re.compile(r"(?<=-)[0-9a-f]{8,10}-[a-z0-9]{5}\b"), "HASH"),
    (re.compile(r"\s+"), " "),
]


@dataclass(frozen=True)
class Step:
    """A block. ``use``: "source NAME", "server", "program", "output", "file NAME" or "commands"; ``line``: its first line, from 1."""

    use: str
    text: str
    line: int


class TutorialFailed(Exception):
    """A command printed something else than the page shows."""


def sections(page: str) -> dict[str, list[Step]]:
    """Return the blocks of each section of a page, by its heading of the second level.

    Raises:
        ValueError: A comment names a use that does not exist.
    """
    result: dict[str, list[Step]] = {}
    starts = [*re.finditer(r"^## (.*)$", page, re.MULTILINE)]
    for number, start in enumerate(starts):
        end = starts[number + 1].start() if number + 1 < len(starts) else len(page)
        result[start[1]] = list(_steps(page, start.end(), end))
    return result


def _steps(page: str, start: int, end: int) -> Iterator[Step]:
    for match in _BLOCK.finditer(page, start, end):
        use = match["use"] or ("commands" if match["kind"] == "console" else "")
        line = page.count("\n", 0, match.start("text")) + 1
        if use and use not in ("server", "program", "output", "commands") and not use.startswith(("source ", "file ")):
            raise ValueError(f"line {line}: no block is used as {use!r}")
        if use:
            yield Step(use, match["text"], line)


def pattern_of(expected: str) -> re.Pattern[str]:
    """Return the pattern of an output, as ``steady`` writes it."""
    return re.compile(re.escape(steady(expected)).replace(r"\.\.\.", ".*"), re.DOTALL)


def steady(text: str) -> str:
    """Return an output without the parts that differ from run to run."""
    for varying, word in _VARYING:
        text = varying.sub(word, text)
    return text.strip()


class _Program:
    """A running command and its lines. ``quiet``: it must print no traceback."""

    def __init__(self, command: str, environment: dict[str, str], *, quiet: bool) -> None:
        self._quiet = quiet
        self.lines: list[str] = []
        self._arrived: queue.Queue[str] = queue.Queue()
        self._process = subprocess.Popen(
            shlex.split(command), cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._collect, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _collect(self, stream: IO[str]) -> None:
        for line in stream:
            self._arrived.put(line)

    def expect(self, lines: Iterable[str]) -> None:
        """Wait until the program has printed these lines, in this order. Other lines may be between them."""
        deadline = time.monotonic() + _PATIENCE
        for line in lines:
            pattern = pattern_of(line)
            while True:
                try:
                    self.lines.append(self._arrived.get(timeout=max(0.0, deadline - time.monotonic())))
                except queue.Empty:
                    raise TutorialFailed(f"the program does not print {line!r}, but:\n{''.join(self.lines)}") from None
                if pattern.fullmatch(steady(self.lines[-1])):
                    break

    def stop(self) -> None:
        """Send Ctrl-C, and wait for the end.

        Raises:
            TutorialFailed: The program ended with another status than 0, or 130 (interrupted), or its output has a traceback.
        """
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            status = self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._reader.join(5)
            assert self._process.stdout is not None
            self._process.stdout.close()
        while not self._arrived.empty():
            self.lines.append(self._arrived.get())
        output = "".join(self.lines)
        if status not in (0, 130) or (self._quiet and ("Traceback" in output or "was destroyed" in output)):
            raise TutorialFailed(f"the program ended with status {status}:\n{output}")


class Reader:
    """Follows sections of a tutorial, as a reader does.

    Args:
        folder: A folder of the test.
        page_folder: The page's folder for files that the reader makes, for which ``folder`` stands.
    """

    def __init__(self, folder: Path, page_folder: str = "/tmp/bitcoin") -> None:
        self._folder = folder
        self._page_folder = page_folder
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        left_out = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "KUBE"))}
        self._environment = {**left_out, "PATH": programs, "HOME": str(folder), "PYTHONUNBUFFERED": "1", "COLUMNS": "160"}
        self._environment["KUBECONFIG"] = str(folder / "kubeconfig")
        self._servers: list[_Program] = []

    def follow(self, steps: Iterable[Step]) -> None:
        """Follow one section.

        Raises:
            TutorialFailed: A command prints something else than the page shows; the text names the line.
        """
        programs: list[_Program] = []
        try:
            for step in steps:
                try:
                    self._follow(step, programs)
                except TutorialFailed as failure:
                    shown = "".join(programs[-1].lines) if programs else ""
                    raise TutorialFailed(f"block in line {step.line}: {failure}\n{shown}") from None
        finally:
            for program in programs:
                program.stop()

    def close(self) -> None:
        """Stop the servers."""
        for server in self._servers:
            server.stop()
        self._servers.clear()

    def _follow(self, step: Step, programs: list[_Program]) -> None:
        text = step.text.replace(self._page_folder, str(self._folder))
        if step.use in ("server", "program"):
            ((command, expected),) = _COMMAND.findall(text)
            # bash expands the variables of the page.
            program = _Program(f"bash -c {shlex.quote(f'exec {command}')}", self._environment, quiet=step.use == "program")
            (self._servers if step.use == "server" else programs).append(program)
            program.expect(expected.splitlines())
        elif step.use == "output":
            programs[-1].expect(text.splitlines())
        elif step.use.startswith("file "):
            (self._folder / step.use.removeprefix("file ")).write_text(text)
        elif step.use == "commands":
            for command, expected in _COMMAND.findall(text):
                self.type(command, expected)

    def type(self, command: str, expected: str = "...") -> None:
        """Run a command and compare its output. A command that reads is repeated until it prints what the page shows."""
        if command.startswith("export "):
            return  # the environment has the variables already
        pattern = pattern_of(expected)
        deadline = time.monotonic() + _PATIENCE
        while True:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=ROOT,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=60,
            )
            if pattern.fullmatch(steady(done.stdout)):
                return
            if not _READS.match(command) or time.monotonic() > deadline:
                raise TutorialFailed(f"$ {command}\nexpected: {expected}printed:  {done.stdout}")
            time.sleep(0.1)


def with_sources(page: str, folder: Path) -> str:
    """Return a page whose source blocks are the files of a folder."""

    def current(match: re.Match[str]) -> str:
        use = match["use"] or ""
        if not use.startswith("source "):
            return match[0]
        before, after = match.start("text") - match.start(), match.end("text") - match.start()
        return match[0][:before] + (folder / use.removeprefix("source ")).read_text() + match[0][after:]

    return _BLOCK.sub(current, page)


if __name__ == "__main__":
    for path in (ROOT / "docs" / "tutorials").glob("*.md"):
        path.write_text(with_sources(path.read_text(), ROOT / "examples" / f"{path.stem.replace('-', '_')}_tutorial"))
