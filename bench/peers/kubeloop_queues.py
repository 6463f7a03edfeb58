"""kubeloop's queues, measured as ``bench/go/queues`` measures client-go's and controller-runtime's: one JSON line per queue, order, kind of
key and round."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from kubeloop.meta import ObjectKey
from kubeloop.workqueue import PriorityQueue, Queue, QueueTimes, WorkQueue

_QUEUES: dict[str, Callable[[], Queue[Any]]] = {
    "work queue": WorkQueue,
    "work queue with metrics": lambda: WorkQueue(metrics=QueueTimes()),
    "priority queue": PriorityQueue,
    "priority queue with metrics": lambda: PriorityQueue(metrics=QueueTimes()),
    "work queue with tenants": lambda: WorkQueue(tenant=_namespace),
    "priority queue with tenants": lambda: PriorityQueue(tenant=_namespace),
}


def _namespace(key: ObjectKey | str) -> str:
    return key.namespace if isinstance(key, ObjectKey) else key.partition("/")[0]


async def _all(queue: Queue[Any], keys: Sequence[Any]) -> None:
    for key in keys:
        queue.add(key)
    for _ in keys:
        queue.done(await queue.get())


async def _each(queue: Queue[Any], keys: Sequence[Any]) -> None:
    for key in keys:
        queue.add(key)
        queue.done(await queue.get())


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-count", type=int, default=100_000)
    parser.add_argument("-rounds", type=int, default=3)
    args = parser.parse_args()
    keys = [ObjectKey("", f"namespace-{number % 100}", f"name-{number}") for number in range(args.count)]
    kinds: dict[str, Sequence[Any]] = {"texts": [f"{key.namespace}/{key.name}" for key in keys], "keys": keys}
    for name, make in _QUEUES.items():
        for kind, items in kinds.items():
            for order, work in (("all", _all), ("each", _each)):
                for _ in range(args.rounds):
                    gc.collect()
                    began = time.process_time()
                    await work(make(), items)
                    used = time.process_time() - began
                    print(json.dumps({"phase": f"{name}, {kind}, {order}", "objects": len(items), "cpu_s": used}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
