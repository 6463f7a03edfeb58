"""Draws the path: a line from station to station, with the time that lies between them. Coloured on a terminal, plain elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from examples.trace_event.tracer import StationVisit
from kubeloop.meta.columns import WIDTH, folded

_WIDE = 16


def draw(visits: list[StationVisit], console: Console) -> None:
    """Of each station a line (name, when, how long since the one before, bytes, module) and below it what happens there."""
    plain = not console.is_terminal
    point, line = ("o", "|") if plain else ("●", "│")
    width = WIDTH if plain else console.width
    _print(console, Text(f"  {'station':<{_WIDE}} {'at us':>8} {'+ us':>8} {'bytes':>8}  module", style="bold"))
    before = 0.0
    for passage in visits:
        step = passage.at - before
        before = passage.at
        size = "" if passage.size is None else f"{passage.size:,}"
        text = Text()
        text.append(f"{point} ", style=_colour(step))
        text.append(f"{passage.station.name:<{_WIDE}} ", style="bold cyan")
        text.append(f"{passage.at:>8.0f} ")
        text.append(f"{step:>+8.0f} ", style=_colour(step))
        text.append(f"{size:>8}  ", style="green")
        text.append(passage.station.where, style="dim")
        _print(console, text)
        for part in folded(passage.words, width - 4):
            _print(console, Text.assemble((f"{line}   ", _colour(step)), part))


def _print(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=True)


def _colour(step: float) -> str:
    """Slow is red: a network, a person, another process. What runs here is green."""
    return "red" if step > 1000 else "yellow" if step > 100 else "green"
