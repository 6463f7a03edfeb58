"""Resident memory over a run: whether it grows with past events, rather than with present objects."""

from __future__ import annotations

import gc
from pathlib import Path

#: MiB that a run may grow by after its first fifth, in which tables, pools and the allocator find their size.
_ALLOWED = 48.0


def resident() -> float:
    """MiB of this process, after a collection."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status has no VmRSS")


class Memory:
    """``look`` now and then; ``verdict`` at the end."""

    def __init__(self) -> None:
        self.first = self.now = self.settled = resident()
        self._settling = True

    def look(self, done: float) -> None:
        """``done``: which part of the run is over, 0 to 1."""
        self.now = resident()
        if self._settling:
            self.settled = self.now
            self._settling = done < 0.2

    def verdict(self) -> list[str]:
        grown = self.now - self.settled
        if grown <= _ALLOWED:
            return []
        return [f"resident memory grew from {self.settled:.0f} to {self.now:.0f} MiB after the first fifth; {_ALLOWED:.0f} MiB are allowed"]
