"""Draws lines over the number of objects as SVG, by hand: a picture of a dozen points needs no plotting library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path
from xml.sax.saxutils import escape

from bench import clients
from bench.figures import InformerFigures

_WIDTH, _HEIGHT = 780, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 230, 44, 52
#: Distinguishable for most colour-blind readers (Okabe and Ito).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_STYLE = "text{font:13px sans-serif;fill:#24292f}.g{stroke:#d0d7de}.t{font-size:15px;font-weight:bold}"

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Plot:
    """Both axes are logarithmic: what grows with the number of objects is a straight line."""

    title: str
    y_label: str
    lines: Mapping[str, Points]

    def svg(self) -> str:
        points = [point for line in self.lines.values() for point in line]
        x_ticks = sorted({x for x, _ in points})
        y_ticks = _ticks(min(y for _, y in points), max(y for _, y in points))
        across = _Scale(x_ticks[0], x_ticks[-1], _LEFT, _WIDTH - _RIGHT)
        up = _Scale(y_ticks[0], y_ticks[-1], _HEIGHT - _BOTTOM, _TOP)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img">',
            f"<title>{escape(self.title)}</title><style>{_STYLE}</style>",
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/><text class="t" x="{_LEFT}" y="24">{escape(self.title)}</text>',
        ]
        for y in y_ticks:
            at = up(y)
            parts.append(f'<line class="g" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
            parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{_number(y)}</text>')
        for x in x_ticks:
            at = across(x)
            parts.append(f'<line class="g" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>')
            parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{_number(x)}</text>')
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        parts.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 12}" text-anchor="middle">pods</text>')
        side = (_TOP + _HEIGHT - _BOTTOM) / 2
        label = escape(self.y_label)
        parts.append(f'<text x="16" y="{side:.0f}" text-anchor="middle" transform="rotate(-90 16 {side:.0f})">{label}</text>')
        labels = _spread({name: up(line[-1][1]) for name, line in self.lines.items()})
        for (name, line), colour in zip(self.lines.items(), _COLOURS, strict=False):
            path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3.5" fill="{colour}"/>' for x, y in line]
            text = f'<text x="{_WIDTH - _RIGHT + 12}" y="{labels[name] + 4:.1f}" style="fill:{colour}">{escape(name)}</text>'
            parts.append(text)
        return "\n".join([*parts, "</svg>", ""])


class _Scale:
    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low = log10(low)
        self._span = (log10(high) - self._low) or 1.0
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        return self._start + (log10(value) - self._low) / self._span * (self._end - self._start)


def _ticks(low: float, high: float) -> list[float]:
    """1, 2, 5 and their tens, around the values."""
    steps = [digit * 10.0**power for power in range(-3, 9) for digit in (1, 2, 5)]
    below = max(step for step in steps if step <= low)
    above = min(step for step in steps if step >= high)
    return [step for step in steps if below <= step <= above]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _spread(positions: Mapping[str, float], gap: float = 17) -> dict[str, float]:
    """Positions of labels, in their order, not above each other."""
    placed: dict[str, float] = {}
    at = -gap
    for name, y in sorted(positions.items(), key=lambda item: item[1]):
        at = max(y, at + gap)
        placed[name] = at
    return placed


_CHOSEN = {
    clients.KUBELOOP.name: "kubeloop",
    clients.CLIENT_GO_PROTOBUF_STRIPPED.name: "client-go protobuf, stripped",
    clients.CLIENT_GO_JSON.name: "client-go JSON",
    clients.KUBE_RS_STRIPPED.name: "kube-rs, stripped",
    clients.LIGHTKUBE_DICT.name: "lightkube (dict)",
}
_PLOTS: dict[str, tuple[str, str, Callable[[InformerFigures], float]]] = {
    "memory": ("Resident memory of the cache, after a collection and a trim", "MiB", lambda each: each.floor_kib * each.pods / 1024),
    "peak": ("Peak memory of the process while it syncs", "MiB", lambda each: each.peak_mib),
    "list": ("CPU of the first list", "us per object", lambda each: each.listed_us),
    "events": ("CPU of a watch event", "us per event", lambda each: each.event_us),
}


def write(stages: Mapping[str, Mapping[str, InformerFigures]], out: Path) -> list[Path]:
    """One picture per figure, of the stages over HTTP. What was not measured is not drawn."""
    out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, (title, unit, read) in _PLOTS.items():
        lines: dict[str, Points] = {}
        for client, label in _CHOSEN.items():
            found = [stages[stage][client] for stage in ("10k", "50k", "200k") if client in stages.get(stage, {})]
            if found:
                lines[label] = [(each.pods, read(each)) for each in found]
        if lines:
            path = out / f"{name}.svg"
            path.write_text(Plot(title, unit, lines).svg())
            written.append(path)
    return written
