"""Where memory goes: what the system says, what the collector has, and, once tracing was asked for, which lines allocated most."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter
from pathlib import Path

#: Lines that are shown, and kinds of objects.
_TOP = 30


def memory_text() -> str:
    lines = [f"resident: {_resident()}", f"collected objects: {len(gc.get_objects())} tracked, generations {gc.get_count()}", ""]
    kinds = Counter(type(one).__qualname__ for one in gc.get_objects())
    lines += [f"{number:>10} {kind}" for kind, number in kinds.most_common(_TOP)]
    if not tracemalloc.is_tracing():
        lines += ["", "allocations are not traced; PUT /debug/memory?trace=on traces them from then on (slower), trace=off ends that"]
        return "\n".join(lines) + "\n"
    current, peak = tracemalloc.get_traced_memory()
    lines += ["", f"traced: {current} bytes now, {peak} at most; the tracing itself takes {tracemalloc.get_tracemalloc_memory()}"]
    lines += [
        f"{one.size:>12} bytes in {one.count} blocks at {one.traceback}" for one in tracemalloc.take_snapshot().statistics("lineno")[:_TOP]
    ]
    return "\n".join(lines) + "\n"


def trace(wanted: str) -> str | None:
    """Begin (``on``) or end (``off``) tracing; what was done, None for another word."""
    if wanted == "on":
        tracemalloc.start()
        return "allocations are traced\n"
    if wanted == "off":
        tracemalloc.stop()
        return "allocations are traced no longer\n"
    return None


def _resident() -> str:
    try:
        line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmRSS:"))
    except (OSError, StopIteration):
        return "not known on this system"
    return line.removeprefix("VmRSS:").strip()
