"""How often the status of one object may be written: at first at once, then, while it goes on changing, ever less often.

Pure: it is told the time. What it knows is in memory only: a counter in the status would itself be a write.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Writes:
    count: int
    allowed: float


class WriteBackoff:
    """Exponential pauses between the writes of one object.

    Guarantees
        The first ``free`` writes are never held back. From then on each pause is twice the one before: ``initial`` seconds, up to ``cap``.
        After ``calm`` seconds in which a write was allowed and none came, the object starts over.
        Objects that are calm are forgotten, so that memory holds only what has been written lately.

    Not guaranteed
        Anything across a restart: then every object starts over.

    Raises:
        ValueError: a number below zero, or ``cap`` below ``initial``.
    """

    def __init__(self, *, free: int = 5, initial: float = 1.0, cap: float = 60.0, calm: float = 120.0) -> None:
        if free < 0 or initial <= 0 or cap < initial or calm < 0:
            raise ValueError(
                f"write back-off wants free and calm >= 0, initial > 0 and cap >= initial, not {free=} {initial=} {cap=} {calm=}"
            )
        self._free = free
        self._initial = initial
        self._cap = cap
        self._calm = calm
        self._writes: dict[str, _Writes] = {}
        self._sweep_at = 1024

    def wait(self, uid: str, now: float) -> float:
        """Seconds until the object may be written; 0 for now."""
        known = self._known(uid, now)
        return 0.0 if known is None else max(0.0, known.allowed - now)

    def wrote(self, uid: str, now: float) -> None:
        """The object was written."""
        known = self._known(uid, now)
        if known is None:
            self._sweep(now)
            known = self._writes[uid] = _Writes(0, now)
        known.count += 1
        # Capped before it is raised to a power: that of a thousand writes would overflow.
        doublings = min(known.count - self._free, 64)
        known.allowed = now + (min(self._initial * 2.0 ** (doublings - 1), self._cap) if doublings > 0 else 0.0)

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._writes.pop(uid, None)

    def __len__(self) -> int:
        return len(self._writes)

    def _known(self, uid: str, now: float) -> _Writes | None:
        known = self._writes.get(uid)
        if known is not None and now >= known.allowed + self._calm:
            del self._writes[uid]
            return None
        return known

    def _sweep(self, now: float) -> None:
        if len(self._writes) >= self._sweep_at:
            self._writes = {uid: one for uid, one in self._writes.items() if now < one.allowed + self._calm}
            self._sweep_at = max(1024, 2 * len(self._writes))
