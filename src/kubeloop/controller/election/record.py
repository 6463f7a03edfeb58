"""What a Lease says about an election, apart from the object that carries it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kubeloop.api.coordination.v1 import LeaseSpec


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """Who leads, and since when. An empty ``holder``: nobody, take it at once.

    ``acquired`` and ``renewed`` are the holder's time of day: for people, and to see that something changed; never compared with a clock
    here. ``duration`` in seconds. ``preferred``, ``strategy``: of coordinated election.
    """

    holder: str = ""
    duration: int = 0
    acquired: datetime | None = None
    renewed: datetime | None = None
    transitions: int = 0
    preferred: str = ""
    strategy: str = ""

    @classmethod
    def of(cls, spec: LeaseSpec) -> LeaseRecord:
        """What a server's spec says; missing fields are empty (behaviour I129)."""
        return cls(
            spec.holder_identity or "",
            spec.lease_duration_seconds or 0,
            spec.acquire_time,
            spec.renew_time,
            spec.lease_transitions or 0,
            spec.preferred_holder or "",
            spec.strategy or "",
        )

    def spec(self) -> LeaseSpec:
        """As a spec; the two fields of coordinated election only if they are set, as older servers do not know them."""
        return LeaseSpec(
            holder_identity=self.holder,
            lease_duration_seconds=self.duration,
            acquire_time=self.acquired,
            renew_time=self.renewed,
            lease_transitions=self.transitions,
            preferred_holder=self.preferred or None,
            strategy=self.strategy or None,
        )
