"""The measuring protocol of the Python clients: arguments, and one JSON line per phase. Imports nothing that a client would not.

CLIENT --server URL --count N --last-rv RV      list, watch, hold
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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--last-rv", default="")
    parser.add_argument("--get", default="")
    args = parser.parse_args()
    args.namespace, _, args.name = args.get.partition("/")
    return args


def cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def kib(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


class Meter:
    """CPU (user and system) and wall time from its making to each report."""

    def __init__(self) -> None:
        self.cpu, self.wall = cpu(), time.perf_counter()

    def report(self, phase: str, objects: int, **more: object) -> None:
        line = {
            "phase": phase,
            "objects": objects,
            "cpu_s": round(cpu() - self.cpu, 6),
            "wall_s": round(time.perf_counter() - self.wall, 6),
            "rss_kib": kib("VmRSS"),
            "hwm_kib": kib("VmHWM"),
        }
        print(json.dumps(line | more), flush=True)


def start() -> Meter:
    gc.collect()
    Meter().report("start", 0)
    return Meter()


def go(server: str) -> Meter:
    """Start the meter of the events, then ask for them."""
    meter = Meter()
    context = ssl._create_unverified_context() if server.startswith("https") else None
    with urllib.request.urlopen(urllib.request.Request(server + "/control/go", method="POST"), context=context) as answer:
        answer.read()
    return meter


def hold(objects: int, **more: object) -> None:
    """Report what is left after a collection and the return of free memory."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Meter().report("hold", objects, **more)


def check(count: int, args: argparse.Namespace) -> None:
    if count != args.count:
        raise SystemExit(f"{count} pods in the store, want {args.count}")
