"""The rules of an election, without I/O and without a clock: what was seen when, and what may be written now.

Source: client-go tools/leaderelection (tryAcquireOrRenew, tryCoordinatedRenew); behaviours I121 to I123, I130.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from kubeloop.controller.election.record import LeaseRecord


@dataclass(frozen=True, slots=True)
class Seen:
    """The record last seen, and the local monotonic time in seconds at which it was first seen so."""

    record: LeaseRecord
    at: float

    def next(self, record: LeaseRecord, now: float) -> Seen:
        """After a read. A record that is as before does not become younger by being read again (behaviour I123)."""
        return self if record == self.record else Seen(record, now)

    def alive(self, now: float) -> bool:
        """Whether its holder may still lead. Counted from when the record was *seen* to change, by the local clock alone: a time of day
        that another machine wrote is never compared with ours."""
        return self.at + self.record.duration > now


@dataclass(frozen=True, slots=True)
class Write:
    """Write this record. ``renewal``: we hold the lease already."""

    record: LeaseRecord
    renewal: bool


@dataclass(frozen=True, slots=True)
class Held:
    """``holder`` leads and has not been seen to expire."""

    holder: str


@dataclass(frozen=True, slots=True)
class Refused:
    """In a coordinated election: not ours to write, for the reason in ``why``."""

    why: str


def first(identity: str, duration: int, wall: datetime) -> LeaseRecord:
    """For a Lease that does not exist."""
    return LeaseRecord(identity, duration, wall, wall)


def renewed(record: LeaseRecord, duration: int, wall: datetime) -> LeaseRecord:
    """Our own record, renewed: transitions and the time of acquisition stay (behaviour I122)."""
    return replace(record, duration=duration, renewed=wall)


def released(record: LeaseRecord, wall: datetime) -> LeaseRecord:
    """Given back: without a holder, for one second; transitions stay (behaviour I125)."""
    return LeaseRecord("", 1, wall, wall, record.transitions)


def after_read(seen: Seen, identity: str, duration: int, now: float, wall: datetime) -> Write | Held:
    """What to do about the record that was read. ``now`` is from before the read: late is safe here, early is not."""
    record = seen.record
    if record.holder == identity:
        return Write(renewed(record, duration, wall), renewal=True)
    if record.holder and seen.alive(now):
        return Held(record.holder)
    return Write(LeaseRecord(identity, duration, wall, wall, record.transitions + 1), renewal=False)


def after_coordinated_read(seen: Seen, identity: str, duration: int, now: float, wall: datetime) -> Write | Held | Refused:
    """As ``after_read`` where the server chooses the holder: only what it gave us may be renewed, and only until it prefers another
    (behaviour I130)."""
    record = seen.record
    if record.holder != identity:
        return Held(record.holder) if record.holder else Refused("the server has not chosen a holder yet")
    if not seen.alive(now):
        return Refused("the lease has expired; the server chooses anew")
    if record.preferred:
        return Refused(f'the server asks to hand over to "{record.preferred}"')
    return Write(renewed(record, duration, wall), renewal=True)
