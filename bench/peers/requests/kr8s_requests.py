"""kr8s, whose get by name is a list, and whose objects are trees. Runs in its own environment."""

from __future__ import annotations

import asyncio

import kr8s
from kr8s.asyncio.objects import Pod

from bench.peers import measure
from bench.peers.requests import protocol

args = protocol.arguments()


async def main() -> None:
    api = await kr8s.asyncio.api()
    pod = await Pod.get(args.name, namespace=args.namespace, api=api)

    async def patch(number: int) -> None:
        await pod.patch({"metadata": {"labels": {"round": str(number)}}})

    await protocol.each_async("get", args.requests, lambda _: Pod.get(args.name, namespace=args.namespace, api=api))
    await protocol.each_async("patch", args.requests, patch)  # it has no update
    meter = protocol.fresh()
    pods = [pod async for pod in api.get("pods", namespace=kr8s.ALL)]
    meter.report("list", len(pods))
    measure.check(len(pods), args)
    version = max(int(pod.metadata.resourceVersion) for pod in pods)  # it does not show the list's own
    del pods
    meter = protocol.fresh()
    await asyncio.to_thread(measure.go, args.server)
    seen = 0
    async for _, pod in api.watch("pods", namespace=kr8s.ALL, since=str(version)):
        seen += 1
        if pod.metadata.resourceVersion == args.last_rv:
            break
    meter.report("watch", seen)
    measure.hold(0)


asyncio.run(main())
