"""What the embedded server does on one core today: start, create and get. Recorded, without a goal but for the start."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta
from kubeloop.testing import LocalCluster

_STARTS = 5
_Work = Callable[[int], Awaitable[None]]


@dataclass(frozen=True)
class Rates:
    """Seconds and requests per second. ``first_answer_s``: from the process's start to the first answered request, median of several."""

    first_answer_s: float
    creates: float
    gets: float


def measure(objects: int, workers: int = 8) -> Rates:
    return asyncio.run(_measure(objects, workers))


async def _first_answer() -> float:
    began = time.perf_counter()
    async with LocalCluster(controllers=False) as cluster, Client.from_config(cluster.kubeconfig) as client:
        await client.transport.request("GET", "/version")
        return time.perf_counter() - began


async def _measure(objects: int, workers: int) -> Rates:
    first = statistics.median([await _first_answer() for _ in range(_STARTS)])
    async with LocalCluster(controllers=False) as cluster, Client.from_config(cluster.kubeconfig) as client:

        async def create(number: int) -> None:
            await client.create(ConfigMap(metadata=ObjectMeta(name=f"c{number}", namespace="default"), data={"k": "v" * 100}))

        async def get(number: int) -> None:
            await client.get(ConfigMap, f"c{number}", namespace="default")

        creates = await _rate(create, objects, workers)
        gets = await _rate(get, objects, workers)
        return Rates(first, creates, gets)


async def _rate(work: _Work, objects: int, workers: int) -> float:
    began = time.perf_counter()

    async def share(worker: int) -> None:
        for number in range(worker, objects, workers):
            await work(number)

    await asyncio.gather(*map(share, range(workers)))
    return objects / (time.perf_counter() - began)
