"""Shows a running manager: a table that is redrawn, with the logs above it, or lines without a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from kubeloop.cli.run.board import ControllerRow, DashboardSnapshot, DashboardSnapshots
from kubeloop.cli.watch_view.text import visible
from kubeloop.meta.columns import aligned, folded
from kubeloop.meta.repr import counted
from kubeloop.timing import Clock

_CONTROLLER = ("CONTROLLER", "WORKERS", "WAITING", "WORKING", "LATER", "RECONCILES", "PER S", "ERRORS")
_INFORMER = ("INFORMER", "OBJECTS", "STATE")
_STATES = {"running": "bold green", "stopping": "bold yellow", "stopped": "bold yellow"}


def table(board: DashboardSnapshot) -> RenderableType:
    """Return a renderable table of a snapshot: controllers with their queues, informers, and last errors."""
    return _Drawn(board)


@dataclass(frozen=True)
class _Drawn:
    board: DashboardSnapshot

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        board, width = self.board, options.max_width
        place = f"{visible(board.app)} on {visible(board.cluster)}: "
        yield Text.assemble(
            (visible(board.app), "bold"), place.removeprefix(visible(board.app)),
            (board.state, _STATES.get(board.state, "bold cyan")), (f" {_time(board.seconds)}", "dim"),
        )  # fmt: skip
        if board.controllers:
            yield Text("")
            yield from _controllers(board, width)
        if board.informers:
            yield Text("")
            yield from _informers(board, width)
        failing = [row for row in board.controllers if row.last_error]
        if failing:
            yield Text("")
        for row in failing:
            first, *rest = folded(f"last error {row.name} {visible(row.failing)}: {_line(row.last_error)}", width) or [""]
            yield _whole(Text.assemble(("last error", "bold red"), first.removeprefix("last error")))
            yield from (_whole(Text(line)) for line in rest)


def begun(board: DashboardSnapshot) -> str:
    """Return one log line for the start of the program."""
    names = ", ".join(row.name for row in board.controllers) or "no controller"
    objects = sum(row.objects for row in board.informers)
    caches = f"{counted(len(board.informers), 'informer')} synced, {counted(objects, 'object')}"
    return f"{board.state} on {visible(board.cluster)}: {names}; {caches}"


def figures(row: ControllerRow) -> str:
    """Return one log line about a controller."""
    last = f", the last one of {visible(row.failing)}: {_line(row.last_error)}"
    errors = f", {counted(row.errors, 'error')}{last}" if row.errors else ", no error"
    queue = f"{row.waiting} waiting, {row.working} working, {row.later} later"
    return f"{row.name}: {counted(row.reconciles, 'reconcile')} ({row.per_second:.1f}/s), {queue}{errors}"


def _controllers(board: DashboardSnapshot, width: int) -> Iterator[Text]:
    rows = [
        (row.name, *map(str, (row.workers, row.waiting, row.working, row.later, row.reconciles)), f"{row.per_second:.1f}", str(row.errors))
        for row in board.controllers
    ]
    heading, *blocks = aligned(_CONTROLLER, rows, right=_CONTROLLER[1:], width=width)
    yield from (_whole(Text(line, style="bold")) for line in heading)
    for row, block in zip(board.controllers, blocks, strict=True):
        for line in block:
            text = Text(line)
            if row.errors and line is block[-1]:
                text.stylize("bold red", len(line) - len(str(row.errors)))
            yield _whole(text)


def _informers(board: DashboardSnapshot, width: int) -> Iterator[Text]:
    rows = [(row.what, str(row.objects), "synced" if row.synced else "not synced") for row in board.informers]
    heading, *blocks = aligned(_INFORMER, rows, right=("OBJECTS",), width=width)
    yield from (_whole(Text(line, style="bold")) for line in heading)
    for row, block in zip(board.informers, blocks, strict=True):
        for line in block:
            text = Text(line)
            text.highlight_words(["not synced"], "yellow")
            text.highlight_words([] if not row.synced else ["synced"], "green")
            yield _whole(text)
        if not row.synced:
            yield from (_whole(Text(line, style="yellow")) for line in folded(_line(row.why), width, "  "))


def _whole(text: Text) -> Text:
    """Return a line that the console folds only where it is longer than the width, such as a long name."""
    text.no_wrap, text.overflow = True, "fold"
    return text


def _line(text: str) -> str:
    return visible(" ".join(text.split()))


def _time(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


#: Seconds between two snapshots.
_PERIOD = 0.25
#: Seconds between two lines about one controller.
_QUIET = 2.0


class SnapshotView(Protocol):
    """Shows the snapshots of a running manager to the user."""

    def update(self, board: DashboardSnapshot) -> None: ...


class Lines:
    """Prints a line when the program runs, and then a line for each controller whose counts changed, at most every two seconds."""

    def __init__(self) -> None:
        self._ready = False
        self._said: dict[str, tuple[float, tuple[int, ...]]] = {}

    def update(self, board: DashboardSnapshot) -> None:
        for line in self.lines(board):
            print(line, flush=True)

    def lines(self, board: DashboardSnapshot) -> list[str]:
        """Return the lines to print for a snapshot."""
        found: list[str] = []
        if board.state != "running" and not self._ready:
            return found
        if not self._ready:
            self._ready = True
            found.append(begun(board))
        for row in board.controllers:
            when, was = self._said.get(row.name, (-_QUIET, _moved(ControllerRow(row.name))))
            now = _moved(row)
            if now != was and board.seconds - when >= _QUIET:
                self._said[row.name] = (board.seconds, now)
                found.append(figures(row))
        return found


def _moved(row: ControllerRow) -> tuple[int, ...]:
    return (row.waiting, row.working, row.later, row.reconciles, row.errors)


@contextmanager
def view_of(live: bool) -> Iterator[SnapshotView]:
    """Provide a view for the block: a live table, above which the program's output appears, or else lines."""
    if not live:
        yield Lines()
        return
    from rich.console import Console
    from rich.live import Live

    # The event loop draws the table, because a separate thread would read figures while they change.
    with Live(console=Console(file=sys.stdout, force_terminal=True), auto_refresh=False, transient=True) as drawn:

        class Drawn:
            def update(self, board: DashboardSnapshot) -> None:
                drawn.update(table(board), refresh=True)

        yield Drawn()


async def follow(boards: DashboardSnapshots, view: SnapshotView, clock: Clock) -> None:
    """Show snapshots until cancelled."""
    while True:
        try:
            view.update(boards.take(clock.now()))
        except Exception:  # a view must not end the program
            logging.getLogger("kubeloop.cli.run").exception("the program cannot be shown")
            return
        await clock.sleep(_PERIOD)
