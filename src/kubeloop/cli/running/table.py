"""Draws a board: a table for a terminal, lines for anything else. Nothing but what the board holds goes in."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kubeloop.cli.running.board import Board, ControllerRow
from kubeloop.cli.watching.text import visible

_STATES = {"running": "bold green", "stopping": "bold yellow", "stopped": "bold yellow"}


def table(board: Board) -> RenderableType:
    """Controllers with their queues, informers, and last errors."""
    parts: list[RenderableType] = [
        Text.assemble(
            (visible(board.app), "bold"), f" on {visible(board.cluster)}: ", (board.state, _STATES.get(board.state, "bold cyan")),
            (f" {_time(board.seconds)}", "dim"), no_wrap=True, overflow="ellipsis",
        )
    ]  # fmt: skip
    if board.controllers:
        parts += [Text(""), _controllers(board)]
    if board.informers:
        parts += [Text(""), _informers(board)]
    if any(row.last_error for row in board.controllers):
        parts.append(Text(""))
    parts += [
        Text.assemble(("last error ", "bold red"), (f"{row.name} {visible(row.failing)}: ", "bold"), _line(row.last_error))
        for row in board.controllers
        if row.last_error
    ]
    return Group(*parts)


def begun(board: Board) -> str:
    """One line for logs when the program runs."""
    names = ", ".join(row.name for row in board.controllers) or "no controller"
    objects = sum(row.objects for row in board.informers)
    return f"{board.state} on {visible(board.cluster)}: {names}; {len(board.informers)} informers synced, {objects} objects"


def figures(row: ControllerRow) -> str:
    """One line for logs about one controller."""
    errors = f", {row.errors} errors, the last one of {visible(row.failing)}: {_line(row.last_error)}" if row.errors else ", no error"
    queue = f"{row.waiting} waiting, {row.working} working, {row.later} later"
    return f"{row.name}: {row.reconciles} reconciles ({row.per_second:.1f}/s), {queue}{errors}"


def _controllers(board: Board) -> Table:
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    found.add_column("CONTROLLER", overflow="fold")
    for column in ("WORKERS", "WAITING", "WORKING", "LATER", "RECONCILES", "PER S", "ERRORS"):
        found.add_column(column, justify="right", no_wrap=True)
    for row in board.controllers:
        numbers = (row.workers, row.waiting, row.working, row.later, row.reconciles)
        errors = Text(str(row.errors), style="bold red" if row.errors else "")
        found.add_row(Text(row.name), *(str(number) for number in numbers), f"{row.per_second:.1f}", errors)
    return found


def _informers(board: Board) -> Table:
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    found.add_column("INFORMER", overflow="fold")
    found.add_column("OBJECTS", justify="right", no_wrap=True)
    found.add_column("STATE", overflow="fold")
    for row in board.informers:
        state = Text("synced", style="green") if row.synced else Text(_line(row.why) or "not synced", style="yellow")
        found.add_row(Text(row.what), str(row.objects), state)
    return found


def _line(text: str) -> str:
    return visible(" ".join(text.split()))


def _time(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
