"""Shows informers to people as a table (terminal, plain text, notebook), and all their numbers as JSON.

Contents of objects are never shown. ``rich`` is imported only when a table is drawn.
"""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from kubeloop.cache.diagnostics.stats import HandlerStats, InformerStats
from kubeloop.meta.columns import WIDTH, aligned, folded

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

_HEADINGS = ("KIND", "SCOPE", "OBJECTS", "STORED", "EVENTS", "LAG", "STATE", "LISTS", "RESTARTS", "HANDLERS")
_NUMERIC = frozenset({"OBJECTS", "EVENTS", "LAG", "LISTS", "RESTARTS"})
#: Columns that are shown after KIND if not all columns fit.
_SHORT = ("OBJECTS", "LAG", "STATE")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
#: Seconds without an event or bookmark after which a watch is highlighted: three bookmarks are missing.
STALE = 180.0
#: Seconds: if an event waits longer, its handler is slow.
LATE = 10.0


class Description:
    """The state of all informers at one moment, as a table.

    ``print(description)`` writes plain text in 80 columns, ``rich.print(description)`` a coloured table; notebooks show HTML.

    Example:
        >>> async with InformerFactory(client) as informers:
        ...     pods = informers.for_kind(Pod)
        ...     await pods.wait_synced()
        ...     print(informers.describe().rows()[0])
        (...)
    """

    def __init__(self, stats: Sequence[InformerStats]) -> None:
        self.stats = tuple(stats)
        several = len({each.cluster for each in self.stats}) > 1
        #: Names of the columns; CLUSTER is included only if there are several clusters.
        self.headings = ("CLUSTER", *_HEADINGS) if several else _HEADINGS

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row of strings for each informer, in the order of ``headings``."""
        several = len(self.headings) > len(_HEADINGS)
        marks = self._marks()
        cells = [_row(stats, f" [{marks[at]}]" if at in marks else "") for at, stats in enumerate(self.stats)]
        return [(stats.cluster, *row) if several else row for stats, row in zip(self.stats, cells, strict=True)]

    def notes(self) -> list[str]:
        """Return the footnotes: the full error of each informer whose last request failed. The STATE column refers to them by number."""
        several = len(self.headings) > len(_HEADINGS)
        tree = []
        for at, mark in self._marks().items():
            stats = self.stats[at]
            prefix = f'cluster "{stats.cluster}": ' if several else ""
            tree.append(f"[{mark}] {prefix}{stats.description}: {stats.failure}")
        return tree

    def _marks(self) -> dict[int, int]:
        """Map the index of each failing informer to the number of its footnote."""
        noted = (at for at, stats in enumerate(self.stats) if stats.failure and not stats.stopped)
        return {at: mark for mark, at in enumerate(noted, 1)}

    def __str__(self) -> str:
        return "\n".join([line for block in self._blocks(WIDTH) for line in block])

    __repr__ = __str__

    def _blocks(self, width: int) -> list[list[str]]:
        """Return blocks of lines of at most ``width`` characters: the headings, then each informer, then each footnote.

        An informer has a row of few columns, and its other values in lines below.
        """
        rows = [dict(zip(self.headings, row, strict=True)) for row in self.rows()]
        several = "CLUSTER" in self.headings
        headings = ("CLUSTER/KIND" if several else "KIND", *_SHORT)
        cells = [(f"{row['CLUSTER']}/{row['KIND']}" if several else row["KIND"], *(row[name] for name in _SHORT)) for row in rows]
        heading, *lines = aligned(headings, cells, right=_NUMERIC, width=width)
        blocks = [heading]
        for row, first_lines in zip(rows, lines, strict=True):
            counts = f"events {row['EVENTS']}; lists {row['LISTS']}; restarts {row['RESTARTS']}"
            scope = re.sub(r",(?=\S)", ", ", row["SCOPE"])  # so that a long selector can be wrapped
            details = [f"scope {scope}; stored {row['STORED']}; {counts}", f"handlers: {row['HANDLERS']}"]
            blocks.append([*first_lines, *(line for text in details for line in folded(text, width, "  "))])
        return [*blocks, *(folded(note, width) for note in self.notes())]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        rows = [self.headings, *self.rows()]
        if sum(max(map(len, column)) + 1 for column in zip(*rows, strict=True)) <= options.max_width:
            yield self._table()
            yield from (Text(note, overflow="fold") for note in self.notes())
            return
        blocks = self._blocks(options.max_width)
        styles = ["bold underline", *(_styles(stats)["STATE"] for stats in self.stats)]
        for at, block in enumerate(blocks):
            for number, line in enumerate(block):
                first_lines = at < len(styles) and (number == 0 or not line.startswith("  "))
                yield Text(line, style=styles[at] if first_lines else "dim", no_wrap=True, overflow="ignore")

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold underline", padding=(0, 1, 0, 0), pad_edge=False)
        for heading in self.headings:
            justify: Literal["right", "left"] = "right" if heading in _NUMERIC else "left"
            table.add_column(heading, justify=justify, no_wrap=True)
        for stats, row in zip(self.stats, self.rows(), strict=True):
            styles = _styles(stats)
            table.add_row(*(Text(cell, style=styles.get(heading, "")) for cell, heading in zip(row, self.headings, strict=True)))
        return table

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{heading}</th>" for heading in self.headings)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows())
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def dump(stats: Sequence[InformerStats]) -> dict[str, Any]:
    """Return all numbers as a tree that ``json`` can write.

    It holds no object's contents; the name of an object appears only while a handler processes the object.
    """
    return {"informers": [_tree(each) for each in stats]}


def size(count: float) -> str:
    """Return a number of bytes in words: ``1.5 MiB``."""
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"


def duration(seconds: float) -> str:
    """Return a number of seconds in words: ``0.3 s``, ``12 s``, ``5 min``, ``3 h``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def state(stats: InformerStats) -> str:
    """Return the state of an informer in a few words, with the reason of a failure, such as ``not synced: Forbidden``."""
    if stats.stopped:
        return "stopped"
    prefix = "synced" if stats.synced else "not synced"
    if stats.failure:
        return f"{prefix}: {stats.reason or 'failed'}"
    if stats.synced and not all(feed.watching for feed in stats.feeds):
        return "synced, not watching"
    return prefix


def _row(stats: InformerStats, mark: str) -> tuple[str, ...]:
    scope = ", ".join(stats.namespaces) or "all"
    sign = "" if stats.exact else "~"
    return (
        f"{stats.resource}.{stats.group}" if stats.group else stats.resource,
        f"{scope} ({stats.selection})" if stats.selection else scope,
        f"{stats.objects:,}",
        f"{sign}{size(stats.stored_bytes)} of {size(stats.raw_bytes)} ({stats.ratio:.1f}x)",
        f"{stats.events:,}",
        "-" if stats.lag is None else duration(stats.lag),
        state(stats) + mark,
        _by_reason(stats.lists),
        _by_reason(stats.restarts),
        ", ".join(map(_handler, stats.handlers)) or "none",
    )


def _by_reason(counts: Mapping[str, int]) -> str:
    """Return a total with its reasons, such as ``3 (2 expired)``. The first list and the regular end of a watch need no reason."""
    reasons = ", ".join(f"{number} {why}" for why, number in sorted(counts.items()) if why not in ("first", "ended"))
    return f"{sum(counts.values())} ({reasons})" if reasons else str(sum(counts.values()))


def _handler(handler: HandlerStats) -> str:
    parts = [f"{handler.pending:,} wait"] if handler.pending else []
    parts += [f"oldest {duration(handler.oldest)}"] if handler.pending else []
    parts += [f"at {handler.key} for {duration(handler.running)}"] if handler.running >= LATE else []
    parts += [f"{handler.failures} failed"] if handler.failures else []
    return f"{handler.name} ({', '.join(parts)})" if parts else handler.name


def _styles(stats: InformerStats) -> dict[str, str]:
    bad = bool(stats.failure) or not stats.synced
    late = any(handler.oldest >= LATE or handler.running >= LATE for handler in stats.handlers)
    return {
        "KIND": "bold",
        "STATE": "dim" if stats.stopped else "red" if bad else "green",
        "LAG": "red" if stats.lag is not None and stats.lag >= STALE else "",
        "HANDLERS": "yellow" if late else "",
    }


def _tree(stats: InformerStats) -> dict[str, Any]:
    # Not asdict: it copies mappings of other types than dict by calling them.
    tree: dict[str, Any] = {field.name: getattr(stats, field.name) for field in dataclasses.fields(stats)}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            tree[name] = dict(value)
    tree["namespaces"] = list(stats.namespaces)
    tree["feeds"] = [dataclasses.asdict(feed) for feed in stats.feeds]
    tree["handlers"] = [dataclasses.asdict(handler) for handler in stats.handlers]
    tree |= {"events": stats.events, "ratio": round(stats.ratio, 2)}
    return tree
