"""Formats text for terminals and pipes: aligned columns and folded lines of a given width, without breaking words or cutting names."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence

#: Width of a usual terminal; also used when the output is not a terminal.
WIDTH = 80
_GAP = "  "


def folded(text: str, width: int = WIDTH, indent: str = "") -> list[str]:
    """Fold the text into lines of at most ``width`` characters, between words.

    Args:
        text: Any text; runs of whitespace count as one space.
        width: Characters of a line, the indent included. A longer word has a line to itself.
        indent: Begins each line.

    Returns:
        The lines; none for an empty text.
    """
    words = " ".join(text.split())
    return textwrap.wrap(words, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def aligned(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = (), width: int = WIDTH) -> list[list[str]]:
    """Format rows as lines in aligned columns, the headings first.

    A name in the first column that would make the table wider than ``width`` has a line to itself, above the other cells of its row.

    Args:
        headings: Names of the columns.
        rows: The cells, as many in each row as there are headings.
        right: Headings of the columns that are aligned at the right, as numbers are.
        width: Characters of a line.

    Returns:
        A list of lines for the headings and for each row: usually one line, several if the first cell has lines to itself.
    """
    every = [headings, *rows]
    widths = [max(len(row[at]) for row in every) for at in range(len(headings))]
    rest = sum(widths[1:]) + len(_GAP) * (len(headings) - 1)
    first = max(width - rest, len(headings[0]))
    fitting = [len(row[0]) for row in every if len(row[0]) <= first]
    widths[0] = max(fitting)
    result = []
    for row in every:
        own_line = len(row[0]) > widths[0]
        cells = ["" if own_line else row[0], *row[1:]]
        shown = [cell.rjust(size) if name in right else cell.ljust(size) for cell, size, name in zip(cells, widths, headings, strict=True)]
        result.append([*(folded(row[0], width) if own_line else []), _GAP.join(shown).rstrip()])
    return result
