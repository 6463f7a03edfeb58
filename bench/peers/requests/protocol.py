"""What every client is asked to do, and what it prints: one JSON line per phase. The configuration is the file that KUBECONFIG names.

get, update, patch      one pod, ``--requests`` times each, after an uncounted one
list                    all pods of all namespaces, kept at once
watch                   all events, each as a typed pod
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Awaitable, Callable

from bench.peers import measure


def arguments() -> argparse.Namespace:
    parser = measure.parser()
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--stream", action="store_true", help="only list as a stream, and tell the highest memory")
    return measure.arguments(parser)


def each(phase: str, requests: int, do: Callable[[int], object]) -> None:
    do(0)
    gc.collect()
    meter = measure.Meter()
    for number in range(requests):
        do(number)
    meter.report(phase, requests)


async def each_async(phase: str, requests: int, do: Callable[[int], Awaitable[object]]) -> None:
    await do(0)
    gc.collect()
    meter = measure.Meter()
    for number in range(requests):
        await do(number)
    meter.report(phase, requests)


def fresh() -> measure.Meter:
    gc.collect()
    return measure.Meter()
