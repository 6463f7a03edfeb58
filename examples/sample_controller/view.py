"""How the demo shows itself: a live view in a terminal, plain lines elsewhere; a closing table in both."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kubeloop import InformerFactory, Manager


@dataclass
class Outcome:
    """One step: what it was, how it ended, and how long it took in seconds."""

    title: str
    state: str = "running"
    result: str = ""
    seconds: float = 0.0


@dataclass
class Progress:
    """All that a view shows; the demo writes it, the view reads it."""

    steps: list[Outcome] = field(default_factory=list)
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=12))
    informers: InformerFactory | None = None
    manager: Manager | None = None


class View(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def said(self, line: str) -> None: ...

    def began(self, step: Outcome) -> None: ...

    def ended(self, step: Outcome) -> None: ...


class PlainView:
    """One line per thing that happens."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    def said(self, line: str) -> None:
        self._print(f"   {line}")

    def began(self, step: Outcome) -> None:
        self._print(f"-- {step.title}")

    def ended(self, step: Outcome) -> None:
        self._print(f"   {step.state}: {step.result} ({step.seconds:.1f} s)")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class LiveView:
    """Steps, informers, the controller and the last lines, redrawn a few times a second."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self._progress = progress
        self._live = Live(console=console, get_renderable=self._draw, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.__exit__(kind, error, trace)

    def said(self, line: str) -> None:
        self._progress.lines.append(line)

    def began(self, step: Outcome) -> None:
        self._progress.lines.append(f"-- {step.title}")

    def ended(self, step: Outcome) -> None:
        self._progress.lines.append(f"   {step.state}: {step.result}")

    def _draw(self) -> RenderableType:
        lines = Text("\n".join(self._progress.lines), no_wrap=True, overflow="ellipsis")
        return Group(
            closing_table(self._progress.steps),
            Panel(self._informers(), title="informers", title_align="left", border_style="dim"),
            Panel(self._controllers(), title="controllers", title_align="left", border_style="dim"),
            Panel(lines, title="what happens", title_align="left", border_style="dim"),
        )

    def _informers(self) -> Table:
        table = Table("kind", "objects", "cache", "at version", "events", box=None, pad_edge=False)
        for informer in self._progress.informers or ():
            stats = informer.stats
            table.add_row(
                informer.description, str(stats.objects), f"{stats.stored_bytes / 1024:.1f} KiB", stats.resource_version, str(stats.events)
            )
        return table

    def _controllers(self) -> Table:
        table = Table("controller", "queue", "working", "later", "reconciles", "errors", "last change", box=None, pad_edge=False)
        for stats in self._progress.manager.stats if self._progress.manager else ():
            queue, counts = stats.queue, stats.counts
            numbers = (queue.waiting, queue.processing, queue.delayed, counts.reconciles, counts.errors)
            table.add_row(stats.name, *(str(number) for number in numbers), stats.last_change)
        return table


def closing_table(steps: list[Outcome]) -> Table:
    """Every step with its end."""
    styles = {"done": "green", "failed": "bold red", "running": "yellow"}
    table = Table("step", "state", "result", "seconds", box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[3].justify = "right"
    for step in steps:
        seconds = f"{step.seconds:.1f}" if step.state != "running" else ""
        table.add_row(step.title, Text(step.state, style=styles.get(step.state, "")), Text(step.result), seconds)
    return table
