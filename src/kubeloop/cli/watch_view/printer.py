"""Prints changes: coloured lines on a terminal, plain ones elsewhere, JSON lines or names for programs.

Changes go to standard output, notes about the watch to standard error, so that a pipe carries changes only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import IO, Protocol

import msgspec

from kubeloop.cli.watch_view.diff import ABSENT, FieldDifference, changes, without_noise
from kubeloop.cli.watch_view.text import Line, lines, visible
from kubeloop.codec.redact_secrets import masked, plain
from kubeloop.types import JSONObject

#: Maximum number of listed differences of one event; the rest is only counted.
MOST = 40

#: Prefix of continued lines.
_INDENT = " " * 13

_STYLES = {
    "ADDED": "bold green",
    "MODIFIED": "bold yellow",
    "DELETED": "bold red",
    "INITIAL": "bold blue",
    "added": "green",
    "removed": "red",
    "changed": "yellow",
    "path": "cyan",
    "dim": "dim",
    "name": "bold",
    "warning": "dim yellow",
}


class Printer(Protocol):
    """Prints events. ``word`` is ADDED, MODIFIED, DELETED or INITIAL; the trees are JSON objects."""

    def event(self, at: datetime, word: str, before: JSONObject | None, after: JSONObject, note: str = "") -> None:
        """Print a change.

        Args:
            at: Time of the event.
            word: Type of the event.
            before: The previous state. None: there is none.
            after: The new state.
            note: A remark to print beside it.
        """


def printer_for(output: str, name: Callable[[JSONObject], str], all_fields: bool) -> Printer:
    """Return the printer for ``output``: text, json or name. ``name`` returns an object's name as kubectl writes it: ``pod/web-0``."""
    if output == "json":
        return JsonPrinter(all_fields)
    return NamePrinter(name) if output == "name" else TextPrinter(all_fields)


class NamePrinter:
    """Prints ``pod/web-0``, one per line, for xargs."""

    def __init__(self, name: Callable[[JSONObject], str]) -> None:
        self._name = name

    def event(self, at: datetime, word: str, before: JSONObject | None, after: JSONObject, note: str = "") -> None:  # noqa: ARG002 - one protocol
        """Print the name of the object.

        Args:
            at: See ``Printer.event``.
            word: See ``Printer.event``.
            before: See ``Printer.event``.
            after: See ``Printer.event``.
            note: See ``Printer.event``.
        """
        print(self._name(after), flush=True)


class JsonPrinter:
    """Prints one JSON object per line: ``type``, ``time``, ``object``, and ``changes`` for MODIFIED. Values of secrets are ``***``."""

    def __init__(self, all_fields: bool) -> None:
        self._all_fields = all_fields

    def event(self, at: datetime, word: str, before: JSONObject | None, after: JSONObject, note: str = "") -> None:  # noqa: ARG002 - one protocol
        """Print the event as one line of JSON.

        Args:
            at: See ``Printer.event``.
            word: See ``Printer.event``.
            before: See ``Printer.event``.
            after: See ``Printer.event``.
            note: See ``Printer.event``.
        """
        after = masked(after)
        found = {"type": word, "time": at.isoformat(), "object": plain(after if self._all_fields else _unmanaged(after))}
        if before is not None and word == "MODIFIED":
            found["changes"] = [_tree(change) for change in _changes(masked(before), after, self._all_fields)]
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        sys.stdout.flush()


class TextPrinter:
    """Prints lines for people; coloured if standard output is a terminal and NO_COLOR is not set."""

    def __init__(self, all_fields: bool) -> None:
        self._all_fields = all_fields
        self._write = _writer(sys.stdout)

    def event(self, at: datetime, word: str, before: JSONObject | None, after: JSONObject, note: str = "") -> None:
        """Print the event as text, with the difference between the states.

        Args:
            at: See ``Printer.event``.
            word: See ``Printer.event``.
            before: See ``Printer.event``.
            after: See ``Printer.event``.
            note: See ``Printer.event``.
        """
        found = [] if before is None else _changes(masked(before), masked(after), self._all_fields)
        if word == "MODIFIED" and not found:
            note = note or "nothing but versions and managed fields"
        self._write([[(f"{at.astimezone():%H:%M:%S} ", "dim"), (f"{word:<8} ", word), (key_of(after), "name"), *_noted(note)]])
        shown = found if self._all_fields else found[:MOST]
        self._write([[("           ", ""), *line] for change in shown for line in lines(change)])
        if len(found) > len(shown):
            self._write([[(f"           … {len(found) - len(shown)} more differences (--all-fields shows them)", "dim")]])


def notes() -> Callable[[str], None]:
    """Return a function that prints notes about the watch, dimly, to standard error."""
    write = _writer(sys.stderr)

    def note(text: str) -> None:
        write([[(f"{datetime.now().astimezone():%H:%M:%S} ", "dim"), (visible(text), "dim")]])

    return note


def key_of(tree: JSONObject) -> str:
    """Return ``namespace/name``, or the name of a cluster-scoped object."""
    metadata = tree.get("metadata") or {}
    namespace, name = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    return visible(f"{namespace}/{name}" if namespace else name)


def _noted(note: str) -> Line:
    return [(f"  {note}", "dim")] if note else []


def _changes(before: JSONObject, after: JSONObject, all_fields: bool) -> list[FieldDifference]:
    return changes(before, after) if all_fields else changes(without_noise(before), without_noise(after))


def _unmanaged(tree: JSONObject) -> JSONObject:
    metadata = tree.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return tree
    return {**tree, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def _tree(change: FieldDifference) -> JSONObject:
    found: JSONObject = {"path": change.path}
    if change.before is not ABSENT:
        found["before"] = plain(change.before)
    if change.after is not ABSENT:
        found["after"] = plain(change.after)
    return found


def _writer(stream: IO[str]) -> Callable[[Iterable[Line]], None]:
    if not stream.isatty():

        def write(text_lines: Iterable[Line]) -> None:
            stream.write("".join("".join(text for text, _ in line) + "\n" for line in text_lines))
            stream.flush()

        return write

    # Imported for terminals only: it takes a tenth of a second.
    from rich.console import Console
    from rich.text import Text as RichText

    console = Console(file=stream, highlight=False, markup=False, emoji=False)

    def paint(text_lines: Iterable[Line]) -> None:
        for line in text_lines:
            text = RichText.assemble(*((part, _STYLES.get(style, "")) for part, style in line))
            first, *rest = text.divide(_breaks(text.plain, console.width))
            # Words stay whole; the terminal continues a word that is longer than a line.
            for part in [first, *(RichText.assemble(_INDENT, one) for one in rest)]:
                part.rstrip()
                console.print(part, soft_wrap=True)

    return paint


def _breaks(text: str, width: int) -> list[int]:
    """Return the positions of line breaks, between words only, so that each part fits; continued lines are indented."""
    found, begin, room = [], 0, width
    for word in re.finditer(r"\S+", text):
        if word.end() - begin > room and text[begin : word.start()].strip():
            begin, room = word.start(), max(width - len(_INDENT), 1)
            found.append(begin)
    return found
