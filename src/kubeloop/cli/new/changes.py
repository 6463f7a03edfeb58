"""A planned change of a project: every file is computed and checked first; then all of them are written, or none.

A file that the user changed since kubeloop wrote it is merged by lines. Where that is not possible, the plan has a conflict.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal, NamedTuple

import kubeloop
from kubeloop.cli.new.layout import Project
from kubeloop.cli.new.templates import generate_commands, generated_paths
from kubeloop.meta.errors import ConfigError


class _Change(NamedTuple):
    """Lines ``start`` to ``end`` of the base become ``lines``."""

    start: int
    end: int
    lines: list[str]


def merge_text(base: str, mine: str, theirs: str) -> str | None:
    """Return ``mine`` with the changes from ``base`` to ``theirs``; None if both changed the same lines differently.

    If both insert lines at one place, the result has both insertions, those of ``mine`` first. An insertion that ``mine`` has already is
    not repeated.
    """
    lines = base.splitlines(keepends=True)
    left, right = _changes(lines, mine), _changes(lines, theirs)
    merged: list[str] = []
    at = 0
    while left or right:
        if left and right and left[0] == right[0]:
            change = left.pop(0)
            right.pop(0)
        elif left and right and _is_insertion(left[0]) and _is_insertion(right[0]) and left[0].start == right[0].start:
            first, second = left.pop(0), right.pop(0)
            change = _Change(first.start, first.end, first.lines if _contains(first.lines, second.lines) else first.lines + second.lines)
        elif left and right and _overlap(left[0], right[0]):
            return None
        else:
            change = left.pop(0) if not right or (left and left[0].start <= right[0].start) else right.pop(0)
        merged += lines[at : change.start] + change.lines
        at = change.end
    return "".join(merged + lines[at:])


def _changes(base: Sequence[str], text: str) -> list[_Change]:
    lines = text.splitlines(keepends=True)
    opcodes = SequenceMatcher(None, base, lines, autojunk=False).get_opcodes()
    return [_Change(start, end, lines[first:last]) for tag, start, end, first, last in opcodes if tag != "equal"]


def _is_insertion(change: _Change) -> bool:
    return change.start == change.end


def _contains(lines: list[str], part: list[str]) -> bool:
    """Return whether ``lines`` contain the lines of ``part``, one after the other."""
    return any(lines[at : at + len(part)] == part for at in range(len(lines) - len(part) + 1))


def _overlap(change: _Change, other: _Change) -> bool:
    """Return whether two changes touch the same lines; an insertion at the edge of a change belongs to it."""
    return change.start <= other.end and other.start <= change.end


Action = Literal["create", "change", "merge", "overwrite", "generate", "conflict"]
Conflicts = Literal["show", "keep", "overwrite"]
"""How a plan treats a file that the user changed and that cannot be merged: ``show`` makes it a conflict, so that nothing is written,
``keep`` leaves the file as it is, ``overwrite`` overwrites it."""

#: Folders that the check of a plan does not need.
_LEFT_OUT = (".venv", ".git", "dist", "node_modules", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache")
#: Runs ``kubeloop generate`` for each of its arguments.
GENERATE = """
import sys, click
from kubeloop.cli.generate import generate
for command in sys.argv[1:]:
    try:
        generate.main(command.split(), standalone_mode=False)
    except click.ClickException as error:
        sys.exit(f"Error: kubeloop generate {command}: {error.format_message()}")
"""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of one file. ``before`` is None if the file does not exist; ``after`` is the text that kubeloop writes or, for a conflict,
    would write.
    """

    path: str
    action: Action
    before: str | None
    after: str

    def diff(self) -> str:
        """Return the change as a unified diff."""
        old, new = (self.before or "").splitlines(), self.after.splitlines()
        name = f"a/{self.path}" if self.before is not None else "/dev/null"
        return "\n".join(difflib.unified_diff(old, new, name, f"b/{self.path}", lineterm=""))


@dataclass(frozen=True, slots=True)
class Plan:
    """The changes of a project's files."""

    folder: Path
    changes: tuple[FileChange, ...]

    @property
    def conflicts(self) -> list[FileChange]:
        return [change for change in self.changes if change.action == "conflict"]

    def write(self) -> None:
        """Write all changes, or none.

        Raises:
            ConfigError: A file cannot be written. The files are as they were before.
        """
        done: list[FileChange] = []
        try:
            for change in self.changes:
                path = self.folder / change.path
                path.parent.mkdir(parents=True, exist_ok=True)
                done.append(change)
                _replace(path, change.after)
        except OSError as error:
            for change in done:
                with contextlib.suppress(OSError):
                    path = self.folder / change.path
                    path.unlink(missing_ok=True) if change.before is None else _replace(path, change.before)
            raise ConfigError(f"{error.filename or self.folder}: cannot be written: {error.strerror}; nothing was changed") from error


def plan_changes(
    folder: Path, project: Project, before: Mapping[str, str], after: Mapping[str, str], extra: Mapping[str, str], *, conflicts: Conflicts
) -> Plan:
    """Plan the change of a project, and check it on a copy: its code is imported there, and the manifests are made from it.

    Args:
        folder: The project.
        project: The record of the project after the change.
        before: Path and text of each file as kubeloop renders it before the change.
        after: Path and text of each file as kubeloop renders it after the change.
        extra: Files to create that no template renders.
        conflicts: What becomes of files that the user changed and that cannot be merged.

    Returns:
        The planned changes.

    Raises:
        ConfigError: The code of the project cannot be imported, or does not fit the change.
    """
    changes = [*_template_changes(folder, before, {**after, **extra}, conflicts=conflicts)]
    if any(change.action == "conflict" for change in changes):
        return Plan(folder, tuple(changes))
    return Plan(folder, (*changes, *_generated_changes(folder, project, changes)))


def _template_changes(folder: Path, before: Mapping[str, str], after: Mapping[str, str], *, conflicts: Conflicts) -> Iterator[FileChange]:
    for path, wanted in after.items():
        base = before.get(path)
        if base == wanted:
            continue
        found = _read(folder / path)
        if found == wanted:
            continue
        if found is None:
            # The user removed a file that kubeloop made: it stays away, unless the command makes it for the first time.
            if base is None or conflicts == "overwrite":
                yield FileChange(path, "create", None, wanted)
        elif found == base:
            yield FileChange(path, "change", found, wanted)
        elif base is not None and (merged := merge_text(base, found, wanted)) is not None:
            if merged != found:
                yield FileChange(path, "merge", found, merged)
        elif conflicts != "keep":
            yield FileChange(path, "overwrite" if conflicts == "overwrite" else "conflict", found, wanted)


def _generated_changes(folder: Path, project: Project, changes: Iterable[FileChange]) -> Iterator[FileChange]:
    with tempfile.TemporaryDirectory(prefix="kubeloop-") as temporary:
        copy = Path(temporary) / "project"
        if folder.exists():
            shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)
        Plan(copy, tuple(changes)).write()
        generate(copy, project, python=_python_of(folder))
        for path in generated_paths(project):
            found, made = _read(folder / path), _read(copy / path)
            assert made is not None, f"kubeloop generate wrote no {path}"
            if found != made:
                yield FileChange(path, "generate", found, made)


def generate(folder: Path, project: Project, *, python: str = sys.executable) -> None:
    """Make the manifests from the code, by the commands that the Makefile has.

    Raises:
        ConfigError: A command failed. The message has its errors.
    """
    # In another process, so that nothing of the project stays imported here.
    path = os.pathsep.join(filter(None, (str(Path(kubeloop.__file__).parent.parent), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    words = [python, "-c", GENERATE, *generate_commands(project)]
    result = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if result.returncode:
        said = result.stderr.strip().removeprefix("Error: ")
        raise ConfigError(f"the manifests cannot be made from the code (make manifests): {said}")


def _python_of(folder: Path) -> str:
    """Return the Python of the project's environment, which has all packages that the code imports, or else the running Python."""
    found = folder / ".venv" / "bin" / "python"
    return str(found.absolute()) if found.exists() else sys.executable


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def _replace(path: Path, text: str) -> None:
    """Write a file atomically: a reader sees the old text or the new one. The file's permissions stay."""
    unfinished = path.with_name(f".{path.name}.kubeloop")
    try:
        unfinished.write_text(text, encoding="utf-8")
        if path.exists():
            shutil.copymode(path, unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
