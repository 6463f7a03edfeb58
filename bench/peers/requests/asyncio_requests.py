"""kubernetes_asyncio. Runs in its own environment."""

from __future__ import annotations

import asyncio

import kubernetes_asyncio as k8s

from bench.peers import measure
from bench.peers.requests import protocol

args = protocol.arguments()


async def main() -> None:
    await k8s.config.load_kube_config()
    async with k8s.client.ApiClient() as connection:
        api = k8s.client.CoreV1Api(connection)
        pod = await api.read_namespaced_pod(args.name, args.namespace)

        async def update(number: int) -> None:
            nonlocal pod
            pod.metadata.labels["round"] = str(number)
            pod = await api.replace_namespaced_pod(args.name, args.namespace, pod)

        async def patch(number: int) -> None:
            await api.patch_namespaced_pod(args.name, args.namespace, {"metadata": {"labels": {"round": str(number)}}})

        await protocol.each_async("get", args.requests, lambda _: api.read_namespaced_pod(args.name, args.namespace))
        await protocol.each_async("update", args.requests, update)
        await protocol.each_async("patch", args.requests, patch)
        meter = protocol.fresh()
        answer = await api.list_pod_for_all_namespaces()
        meter.report("list", len(answer.items))
        measure.check(len(answer.items), args)
        version = answer.metadata.resource_version
        del answer
        meter = protocol.fresh()
        await asyncio.to_thread(measure.go, args.server)
        seen = 0
        async with k8s.watch.Watch().stream(api.list_pod_for_all_namespaces, resource_version=version) as events:
            async for event in events:
                seen += 1
                if event["object"].metadata.resource_version == args.last_rv:
                    break
        meter.report("watch", seen)
    measure.hold(0)


asyncio.run(main())
