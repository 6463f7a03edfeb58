"""Shows a running manager: a table that is drawn again and again, with the logs above it, or lines where there is no terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from kubeloop.cli.running.board import Board, Boards, ControllerRow
from kubeloop.cli.running.table import begun, figures, table
from kubeloop.timing import Clock

#: Seconds between two looks.
_PERIOD = 0.25
#: Seconds between two lines about one controller.
_QUIET = 2.0


class View(Protocol):
    """Where boards are shown."""

    def update(self, board: Board) -> None: ...


class Lines:
    """Says when the program runs, and of each controller how it is when that has changed, every two seconds at most."""

    def __init__(self) -> None:
        self._ready = False
        self._said: dict[str, tuple[float, tuple[int, ...]]] = {}

    def update(self, board: Board) -> None:
        for line in self.lines(board):
            print(line, flush=True)

    def lines(self, board: Board) -> list[str]:
        """What is new."""
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
def view_of(live: bool) -> Iterator[View]:
    """For the time of the block. While a table is drawn, what the program writes to its outputs appears above it."""
    if not live:
        yield Lines()
        return
    from rich.console import Console
    from rich.live import Live

    # Drawn by the event loop, not by a thread of its own, which would read figures while they change.
    with Live(console=Console(file=sys.stdout, force_terminal=True), auto_refresh=False, transient=True) as drawn:

        class Drawn:
            def update(self, board: Board) -> None:
                drawn.update(table(board), refresh=True)

        yield Drawn()


async def follow(boards: Boards, view: View, clock: Clock) -> None:
    """Show it until cancelled."""
    while True:
        try:
            view.update(boards.take(clock.now()))
        except Exception:  # a view must not end the program
            logging.getLogger(__name__).exception("the program cannot be shown")
            return
        await clock.sleep(_PERIOD)
