"""Leases: keys that end together, at a time. Who keeps them is told which keys are due; it deletes them."""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.timing import Clock
from kubeloop.timing.clock import Timer


class Leases:
    """``due`` is called with the keys of a lease when it ends, sorted. A key has one lease at most."""

    def __init__(self, clock: Clock, due: Callable[[list[str]], None]) -> None:
        self._clock = clock
        self._due = due
        self._leases: dict[int, tuple[Timer, float, set[str]]] = {}
        self._lease_of: dict[str, int] = {}
        self._next = 1

    def grant(self, seconds: float) -> int:
        """Raises RuntimeError: no event loop is running."""
        lease, self._next = self._next, self._next + 1
        ends = self._clock.wall().timestamp() + seconds
        self._leases[lease] = (self._clock.call_later(seconds, lambda: self._end(lease)), ends, set())
        return lease

    def ends(self, lease: int) -> float | None:
        """When, as seconds since 1970; None for 0, which never ends.

        Raises:
            KeyError: no such lease, or it has ended.
        """
        if not lease:
            return None
        if lease not in self._leases:
            raise KeyError(f"no such lease: {lease}")
        return self._leases[lease][1]

    def attach(self, key: str, lease: int) -> bool:
        """``key`` ends with ``lease`` (0: with none), no longer with another. False: that one has ended meanwhile."""
        before = self._lease_of.pop(key, 0)
        if before in self._leases:
            self._leases[before][2].discard(key)
        if lease in self._leases:
            self._lease_of[key] = lease
            self._leases[lease][2].add(key)
        return not lease or lease in self._leases

    def close(self) -> None:
        for timer, _, _ in self._leases.values():
            timer.cancel()
        self._leases.clear()

    def _end(self, lease: int) -> None:
        _, _, keys = self._leases.pop(lease)
        for key in keys:
            del self._lease_of[key]
        self._due(sorted(keys))
