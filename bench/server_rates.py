"""What the embedded server does on one core today: start, create and get. Recorded, without a goal but for the start."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta
from kubeloop.testing import LocalCluster

_STARTS = 5
_TURNS = 8
_Work = Callable[[int], Awaitable[None]]


@dataclass(frozen=True)
class Rates:
    """Seconds and requests per second. ``first_answer_s``: from the process's start to the first answered request, median of several."""

    first_answer_s: float
    creates: float
    gets: float
    #: With ``--data``, each create on disk before it is answered; ``kept_share`` of ``creates``.
    kept_creates: float
    kept_share: float


def measure(objects: int, workers: int = 8) -> Rates:
    return asyncio.run(_measure(objects, workers))


async def _first_answer() -> float:
    began = time.perf_counter()
    async with LocalCluster(controllers=False) as cluster, Client.from_config(cluster.kubeconfig) as client:
        await client.transport.request("GET", "/version")
        return time.perf_counter() - began


async def _measure(objects: int, workers: int) -> Rates:
    first = statistics.median([await _first_answer() for _ in range(_STARTS)])
    with tempfile.TemporaryDirectory() as folder:
        async with _Server(None, workers) as memory, _Server(Path(folder), workers) as disk:
            # By turns, so that whatever else the machine does is borne by both.
            step = max(objects // _TURNS, workers)
            for begin in range(0, objects, step):
                for one in (memory, disk):
                    await one.create(range(begin, begin + step))
            await memory.get(range(objects))
    return Rates(first, memory.creates, memory.gets, disk.creates, disk.creates / memory.creates)


class _Server:
    """A server of its own, and how long it took for what it did."""

    def __init__(self, data: Path | None, workers: int) -> None:
        self._cluster = LocalCluster(controllers=False, data=data)
        self._workers = workers
        self._created = self._got = 0
        self._creating = self._getting = 0.0

    async def __aenter__(self) -> Self:
        await self._cluster.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._cluster.stop()

    @property
    def creates(self) -> float:
        return self._created / self._creating

    @property
    def gets(self) -> float:
        return self._got / self._getting

    async def create(self, numbers: range) -> None:
        async def create(number: int) -> None:
            made = ConfigMap(metadata=ObjectMeta(name=f"c{number}", namespace="default"), data={"k": "v" * 100})
            await self._cluster.client.create(made)

        self._creating += await self._shared(create, numbers)
        self._created += len(numbers)

    async def get(self, numbers: range) -> None:
        async def get(number: int) -> None:
            await self._cluster.client.get(ConfigMap, f"c{number}", namespace="default")

        self._getting += await self._shared(get, numbers)
        self._got += len(numbers)

    async def _shared(self, work: _Work, numbers: range) -> float:
        """Seconds that the workers took together."""
        began = time.perf_counter()

        async def share(worker: int) -> None:
            for number in numbers[worker :: self._workers]:
                await work(number)

        await asyncio.gather(*map(share, range(self._workers)))
        return time.perf_counter() - began
