"""Writes styled lines: within the width of the terminal, coloured if it is one and NO_COLOR is not set.

Colours are the terminal's basic ones, which its theme makes readable on light and dark backgrounds.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from typing import IO, Final

from kubeloop.cli.watch_view.text import Line

#: A blank at which no line is broken; it is written as a usual one.
NO_BREAK: Final = "\xa0"
#: The width where there is no terminal.
DEFAULT_WIDTH: Final = 160
_NARROWEST: Final = 40
_CODES: Final = {
    "added": "32",
    "removed": "31",
    "changed": "33",
    "path": "36",
    "dim": "2",
    "name": "1",
    "verb": "1",
    "ADDED": "32",
    "MODIFIED": "33",
    "DELETED": "31",
    "BOOKMARK": "2",
    "ERROR": "1;31",
    "failure": "31",
    "warning": "33",
    "good": "32",
}
_WITHOUT_UNICODE: Final = str.maketrans({"→": ">", "←": "<", "↑": "^", "↓": "v", "…": "~", "·": "-"})


class LineWriter:
    """Writes lines to a stream. A stream that was closed by its reader ends the output, not the program.

    >>> LineWriter(sys.stderr).write([("LIST", "verb"), (" pods", "")], right=[("8 ms", "dim")])
    """

    def __init__(self, stream: IO[str], width: int | None = None) -> None:
        """Create a writer. ``width`` is the number of columns; None: that of the terminal."""
        self._stream = stream
        terminal = stream.isatty()
        self._colours = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._unicode = "utf" in (getattr(stream, "encoding", None) or "utf-8").lower()
        self._width = width
        self._is_terminal = terminal
        self._closed = False

    @property
    def width(self) -> int:
        """The present width in columns."""
        if self._width is not None:
            return self._width
        if not self._is_terminal:
            return int(os.environ["COLUMNS"]) if os.environ.get("COLUMNS", "").isdigit() else DEFAULT_WIDTH
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except OSError:
            columns = shutil.get_terminal_size().columns
        return max(columns, _NARROWEST)

    def write(self, left: Line, *, right: Line | None = None, indent: int = 0) -> None:
        """Write a line; longer ones continue in further lines.

        Args:
            left: The text.
            right: Text at the right margin of the first line.
            indent: The indentation of further lines.
        """
        width = self.width
        space = sum(len(text) for text, _ in right or ())
        parts = wrapped(left, width - space - 2 if right else width, width, indent)
        first = next(parts)
        if right:
            gap = max(2, width - space - sum(len(text) for text, _ in first))
            first = [*first, (" " * gap, ""), *right]
        self._put("".join(self._painted(line) + "\n" for line in (first, *parts)))

    def _painted(self, line: Line) -> str:
        text = (
            "".join(
                f"\x1b[{_CODES[style]}m{part}\x1b[0m" if self._colours and style in _CODES and part.strip() else part
                for part, style in line
            )
            .rstrip()
            .replace(NO_BREAK, " ")
        )
        return text if self._unicode else text.translate(_WITHOUT_UNICODE)

    def _put(self, text: str) -> None:
        if self._closed:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # a closed pipe, a closed stream
            self._closed = True


def wrapped(line: Line, first_width: int, width: int, indent: int) -> Iterator[Line]:
    """Break a line between words.

    Args:
        line: The styled text.
        first_width: Columns of the first line.
        width: Columns of the others.
        indent: Their indentation. A word that is longer than a line stays whole.

    Returns:
        The lines.
    """
    current: Line = []
    used, room, start = 0, max(first_width, _NARROWEST // 2), 0
    for text, style in line:
        for word in re.findall(r" +|[^ ]+", text):
            if not word.isspace() and used + len(word) > room and used > start:
                yield _trimmed(current)
                current, used, room, start = [(" " * indent, "")], indent, width, indent
            if word.isspace() and used == start and start:
                continue  # no blanks at the beginning of a continued line
            current.append((word, style))
            used += len(word)
    yield _trimmed(current)


def _trimmed(line: Line) -> Line:
    """Return a line without blanks at its end."""
    end = len(line)
    while end and line[end - 1][0].isspace():
        end -= 1
    return line[:end]
