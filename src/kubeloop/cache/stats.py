"""A moment of one informer in numbers, for live views and debugging."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InformerStats:
    """``stored_bytes`` is what documents take at rest, heads and indexes apart. ``events`` counts changes applied since the start.

    ``pending`` events wait for the slowest handler; ``reconnects`` counts watches that were opened again.
    """

    objects: int
    stored_bytes: int
    events: int
    pending: int
    resource_version: str
    reconnects: int
    synced: bool
