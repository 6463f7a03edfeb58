"""Reading Accept headers: which media types a client wants, in which order.

Source: RFC 9110 section 12.5.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Clause:
    """One alternative of an Accept header, best first after ``parse_accept``; parameter names are lower case."""

    media_type: str
    parameters: tuple[tuple[str, str], ...] = ()
    quality: float = 1.0

    def parameter(self, name: str) -> str:
        return next((value for key, value in self.parameters if key == name), "")


@lru_cache(maxsize=256)
def parse_accept(header: str) -> tuple[Clause, ...]:
    """All clauses, the most wanted first, else in the order given. A malformed quality counts as 1, as Go's goautoneg has it."""
    clauses = [_clause(part) for part in header.split(",") if part.strip()]
    clauses.sort(key=lambda clause: -clause.quality)
    return tuple(clauses)


def _clause(text: str) -> Clause:
    media_type, *rest = text.split(";")
    quality = 1.0
    parameters = []
    for one in rest:
        name, _, value = one.partition("=")
        name, value = name.strip().lower(), value.strip().strip('"')
        if name == "q":
            try:
                quality = float(value)
            except ValueError:
                quality = 1.0
        elif name:
            parameters.append((name, value))
    return Clause(media_type.strip().lower(), tuple(parameters), quality)
