"""kopf: an operator of pods whose handler only counts, of its cheapest kind: on.event writes nothing. Runs in its own environment."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import kopf

from bench.peers import measure

args = measure.arguments()
seen: set[str] = set()
calls = 0
synced = asyncio.Event()
ended = asyncio.Event()


@kopf.on.login()
def login(**_: Any) -> kopf.ConnectionInfo:
    return kopf.ConnectionInfo(server=args.server, token="bench", insecure=True)


@kopf.on.event("v1", "pods")
async def reconcile(body: kopf.Body, **_: Any) -> None:
    global calls
    calls += 1
    if len(seen) < args.count:
        seen.add(body["metadata"]["uid"])
        if len(seen) == args.count:
            synced.set()
    elif body["metadata"]["resourceVersion"] == args.last_rv:
        ended.set()


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False
    settings.scanning.disabled = True


async def main() -> None:
    logging.getLogger("kopf").setLevel(logging.ERROR)
    stop = asyncio.Event()
    meter = measure.start()
    operator = asyncio.create_task(kopf.operator(clusterwide=True, standalone=True, stop_flag=stop))
    await synced.wait()
    meter.report("sync", calls)
    before = calls
    meter = await asyncio.to_thread(measure.go, args.server, args.pause)
    await ended.wait()
    meter.report("events", calls - before)
    measure.hold(calls)
    stop.set()
    await operator


asyncio.run(main())
