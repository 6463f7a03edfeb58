"""kubeloop. Beside what all do: lists of trees and of metadata alone; ``--stream`` lists page by page."""

from __future__ import annotations

import asyncio

from bench.peers import measure
from bench.peers.requests import protocol
from kubeloop import Client
from kubeloop.api.core.v1 import Pod
from kubeloop.client import ALL_NAMESPACES
from kubeloop.meta import Unstructured

args = protocol.arguments()
AnyPod = Unstructured.for_kind("v1", "Pod", plural="pods", namespaced=True)


async def single(client: Client) -> None:
    pod = await client.get(Pod, args.name, namespace=args.namespace)

    async def update(number: int) -> None:
        nonlocal pod
        pod.metadata.labels["round"] = str(number)
        pod = await client.update(pod)

    async def patch(number: int) -> None:
        await client.patch(Pod, args.name, {"metadata": {"labels": {"round": str(number)}}}, namespace=args.namespace)

    await protocol.each_async("get", args.requests, lambda _: client.get(Pod, args.name, namespace=args.namespace))
    await protocol.each_async("update", args.requests, update)
    await protocol.each_async("patch", args.requests, patch)


async def lists(client: Client) -> str:
    meter = protocol.fresh()
    pods = await client.list(Pod, namespace=ALL_NAMESPACES)
    meter.report("list", len(pods))
    measure.check(len(pods), args)
    version = pods.resource_version
    del pods
    meter = protocol.fresh()
    trees = await client.list(AnyPod, namespace=ALL_NAMESPACES)
    meter.report("unstructured", len(trees))
    del trees
    meter = protocol.fresh()
    seen = 0
    async for tree in client.list(AnyPod, namespace=ALL_NAMESPACES):
        assert tree["spec"]["nodeName"]
        seen += 1
    meter.report("unstructured, read", seen)
    meter = protocol.fresh()
    heads = await client.list_metadata(Pod, namespace=ALL_NAMESPACES)
    meter.report("metadata", len(heads))
    return version


async def watch(client: Client, version: str) -> None:
    seen = 0
    async with client.watch(Pod, resource_version=version, namespace=ALL_NAMESPACES) as events:
        meter = protocol.fresh()
        await asyncio.to_thread(measure.go, args.server)
        async for event in events:
            assert event.object.spec is not None
            seen += 1
            if event.object.metadata.resource_version == args.last_rv:
                break
        meter.report("watch", seen)


async def main() -> None:
    async with Client.from_config() as client:
        if args.stream:
            seen = 0
            meter = measure.start()
            async for pod in client.list(Pod, limit=500, namespace=ALL_NAMESPACES):
                assert pod.spec is not None
                seen += 1
            meter.report("stream", seen)
            measure.check(seen, args)
        else:
            await single(client)
            await watch(client, await lists(client))
        measure.hold(0)


asyncio.run(main())
