"""The measuring protocol of the Python clients: arguments, and one JSON line per phase. Imports nothing that a client would not.

CLIENT --server URL --count N --last-rv RV      list, watch, hold; of controllers with --pause 2ms: events one at a time
CLIENT --server URL --get NAMESPACE/NAME        one typed GET, for the start time
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import resource
import ssl
import time
import urllib.request
from pathlib import Path

#: Seconds in which a start has ended, with all that it left for later.
AT_REST = 2.0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    made.add_argument("--server", required=True)
    made.add_argument("--count", type=int, default=0)
    made.add_argument("--last-rv", default="")
    made.add_argument("--get", default="")
    made.add_argument("--pause", default="", help="before each event, as Go writes durations")
    return made


def arguments(of: argparse.ArgumentParser | None = None) -> argparse.Namespace:
    args = (of or parser()).parse_args()
    args.namespace, _, args.name = args.get.partition("/")
    return args


def cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def kib(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def line(phase: str, objects: int, **more: object) -> str:
    return json.dumps({"phase": phase, "objects": objects, "rss_kib": kib("VmRSS"), "hwm_kib": kib("VmHWM")} | more)


class Meter:
    """CPU (user and system) and wall time from its making to each report."""

    def __init__(self) -> None:
        self.cpu, self.wall = cpu(), time.perf_counter()

    def report(self, phase: str, objects: int, **more: object) -> None:
        spent = {"cpu_s": round(cpu() - self.cpu, 6), "wall_s": round(time.perf_counter() - self.wall, 6)}
        print(line(phase, objects, **spent, **more), flush=True)


def start() -> Meter:
    gc.collect()
    Meter().report("start", 0)
    return Meter()


def go(server: str, pause: str = "") -> Meter:
    """Start the meter of the events, then ask for them, with a pause before each. What a first request imports is not theirs.

    Events one at a time come to a program at rest: what its start left to be done is not theirs either.
    """
    if pause:
        time.sleep(AT_REST)
    context = ssl._create_unverified_context() if server.startswith("https") else None
    with urllib.request.urlopen(server + "/control/info", context=context) as answer:
        answer.read()
    meter = Meter()
    with urllib.request.urlopen(urllib.request.Request(f"{server}/control/go?pause={pause}", method="POST"), context=context) as answer:
        answer.read()
    return meter


def hold(objects: int, **more: object) -> None:
    """Report the memory that is left after a collection and the return of free memory."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Meter().report("hold", objects, **more)


def check(count: int, args: argparse.Namespace) -> None:
    if count != args.count:
        raise SystemExit(f"{count} pods in the store, want {args.count}")


class Stalls:
    """The longest time for which an asyncio loop ran nothing else, in milliseconds. A timer due every 2 ms: its delay is the stall."""

    PERIOD = 0.002

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.begin()

    def begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._longest = 0.0
        self._due = self._loop.time() + self.PERIOD
        self._timer = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        self._longest = max(self._longest, now - self._due)
        self._due = now + self.PERIOD
        self._timer = self._loop.call_at(self._due, self._tick)

    @property
    def longest_ms(self) -> float:
        return round(max(self._longest, self._loop.time() - self._due) * 1e3, 1)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
