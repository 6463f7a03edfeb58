"""kubeloop: what reading a cache costs, and a restart from disk. Measures in one process after one sync.

Prints the phases "get" (typed objects by key), "select" (a tenth of the objects by label) and "restart" (a second life from disk).
"""

from __future__ import annotations

import asyncio
import gc
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from bench.peers import measure
from kubeloop.api.core.v1 import Pod
from kubeloop.cache import Informer, InformerFactory
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.config import ClusterConfig
from kubeloop.transport import Transport

args = measure.arguments()
config = ClusterConfig(server=args.server, insecure_skip_tls_verify=args.server.startswith("https"))
_READS = 5000


def by_key(pods: Informer[Pod]) -> None:
    some = random.Random(1).sample(pods.lister.heads(), _READS)
    gc.collect()
    costs = []
    for _ in range(3):
        meter = measure.Meter()
        for head in some:
            pod = pods.lister.get(head.name, head.namespace)
            assert pod is not None
            assert pod.metadata.uid == head.uid
        costs.append(measure.cpu() - meter.cpu)
    print(measure.line("get", _READS, cpu_s=statistics.median(costs)), flush=True)


def tenth(pods: Informer[Pod]) -> str:
    """A label selector that about a tenth of the objects match, whatever their number."""
    counts: dict[str, int] = {}
    for head in pods.lister.heads():
        app = head.labels.get("app", "")
        counts[app] = counts.get(app, 0) + 1
    wanted, chosen = len(pods.lister) // 10, []
    for app, number in sorted(counts.items(), key=lambda item: -item[1]):
        if app and number <= wanted:
            chosen.append(app)
            wanted -= number
    return f"app in ({','.join(chosen)})"


async def select(pods: Informer[Pod]) -> None:
    selector = tenth(pods)
    gc.collect()
    costs, longest, found = [], 0.0, 0
    for _ in range(3):
        stalls = measure.Stalls()
        await asyncio.sleep(0.01)
        stalls.begin()
        began = measure.cpu()
        found = 0
        async for _pod in pods.lister.stream(label_selector=selector):
            found += 1
        costs.append(measure.cpu() - began)
        longest = max(longest, stalls.longest_ms)
        stalls.end()
    print(measure.line("select", found, cpu_s=statistics.median(costs), longest_stall_ms=longest), flush=True)


async def restart(folder: Path) -> None:
    gc.collect()
    async with Client(Transport(config)) as client:
        began, wall = measure.cpu(), time.perf_counter()
        informers = InformerFactory(client, persist=folder, persist_every=0)
        pods = informers.for_kind(Pod, indexes={"node": "spec.nodeName"}, namespace=ALL_NAMESPACES)
        async with informers:
            await informers.wait_synced()
            cost, took = measure.cpu() - began, time.perf_counter() - wall
            measure.check(len(pods.lister), args)
            head = pods.lister.heads()[-1]
            assert pods.lister.get(head.name, head.namespace) is not None
            print(measure.line("restart", len(pods.lister), cpu_s=cost, wall_s=round(took, 3)), flush=True)


async def first_life(folder: Path) -> None:
    async with Client(Transport(config)) as client:
        informers = InformerFactory(client, persist=folder, persist_every=0)
        pods = informers.for_kind(Pod, indexes={"node": "spec.nodeName"}, namespace=ALL_NAMESPACES)
        async with informers:
            await informers.wait_synced()
            measure.check(len(pods.lister), args)
            by_key(pods)
            await select(pods)


def main() -> None:
    where = Path(tempfile.mkdtemp(prefix="kubeloop-bench-"))
    try:
        asyncio.run(first_life(where))
        gc.collect()
        asyncio.run(restart(where))
        measure.hold(args.count)
    finally:
        shutil.rmtree(where)


main()
