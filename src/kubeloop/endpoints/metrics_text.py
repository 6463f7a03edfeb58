"""The Prometheus text format, version 0.0.4.

This is not prometheus_client's encoder, because that one appends ``_total`` to the name of every counter, and not all counters of
Kubernetes have that suffix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"

Labels = Mapping[str, str]


class Histogram:
    """A histogram: the number of observations up to each of ``bounds``, and of those above the last bound."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0


class Exposition:
    """A builder of the response to a scrape. Values that are added for the same sample are summed."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def counter(self, name: str, help_: str, samples: Iterable[tuple[Labels, float]]) -> None:
        self._plain(name, "counter", help_, samples)

    def gauge(self, name: str, help_: str, samples: Iterable[tuple[Labels, float]]) -> None:
        self._plain(name, "gauge", help_, samples)

    def histogram(self, name: str, help_: str, samples: Iterable[tuple[Labels, Histogram]]) -> None:
        lines = []
        for labels, found in samples:
            total = 0
            for bound, total in zip(found.bounds, accumulate(found.counts), strict=False):
                lines.append(f"{name}_bucket{_labels({**labels, 'le': _number(bound)})} {total}")
            total = sum(found.counts)
            lines.append(f"{name}_bucket{_labels({**labels, 'le': '+Inf'})} {total}")
            lines.append(f"{name}_sum{_labels(labels)} {_number(found.sum)}")
            lines.append(f"{name}_count{_labels(labels)} {total}")
        self._head(name, "histogram", help_, lines)

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def _plain(self, name: str, kind: str, help_: str, samples: Iterable[tuple[Labels, float]]) -> None:
        self._head(name, kind, help_, [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples])

    def _head(self, name: str, kind: str, help_: str, lines: list[str]) -> None:
        if lines:
            self._lines += [f"# HELP {name} {help_}", f"# TYPE {name} {kind}", *lines]


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.12g}"
