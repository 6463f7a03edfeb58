"""Draws the path: a line from station to station, with the time that lies between them. Coloured on a terminal, plain elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from examples.trace_event.tracer import Passage

_WIDE = 16


def draw(passages: list[Passage], console: Console) -> None:
    """One station a line: name, when, how long since the one before, bytes, and what happens there."""
    plain = not console.is_terminal
    point, line = ("o", "|") if plain else ("●", "│")
    console.print(Text(f"  {'station':<{_WIDE}} {'module':<27} {'at us':>8} {'+ us':>8} {'bytes':>8}  what happens", style="bold"))
    before = 0.0
    for number, passage in enumerate(passages):
        step = passage.at - before
        before = passage.at
        if number:
            console.print(Text(f"{line}", style=_colour(step)))
        size = "" if passage.size is None else f"{passage.size:,}"
        text = Text()
        text.append(f"{point} ", style=_colour(step))
        text.append(f"{passage.station.name:<{_WIDE}} ", style="bold cyan")
        text.append(f"{passage.station.where:<27} ", style="dim")
        text.append(f"{passage.at:>8.0f} ")
        text.append(f"{step:>+8.0f} ", style=_colour(step))
        text.append(f"{size:>8}  ", style="green")
        text.append(passage.words)
        console.print(text, soft_wrap=True)


def _colour(step: float) -> str:
    """Slow is red: a network, a person, another process. What runs here is green."""
    return "red" if step > 1000 else "yellow" if step > 100 else "green"
