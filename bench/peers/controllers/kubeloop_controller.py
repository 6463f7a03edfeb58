"""kubeloop: a controller of typed pods whose reconcile only counts."""

from __future__ import annotations

import asyncio

from bench.peers import measure
from kubeloop import Client, Controller, Manager
from kubeloop.api.core.v1 import Pod
from kubeloop.config import ClusterConfig
from kubeloop.transport import Transport

args = measure.arguments()


class PodController(Controller[Pod]):
    """Tells ``main`` when every pod was seen, and when the last event was."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.calls = 0
        self.synced = asyncio.Event()
        self.ended = asyncio.Event()

    async def reconcile(self, pod: Pod) -> None:
        self.calls += 1
        if len(self.seen) < args.count:
            self.seen.add(pod.metadata.uid)
            if len(self.seen) == args.count:
                self.synced.set()
        elif pod.metadata.resource_version == args.last_rv:
            self.ended.set()


async def main() -> None:
    config = ClusterConfig(server=args.server, insecure_skip_tls_verify=args.server.startswith("https"))
    controller = PodController()
    async with Client(Transport(config)) as client:
        manager = Manager(client, [controller])
        meter = measure.start()
        async with manager:
            await controller.synced.wait()
            meter.report("sync", controller.calls)
            before = controller.calls
            meter = await asyncio.to_thread(measure.go, args.server, args.pause)
            await controller.ended.wait()
            meter.report("events", controller.calls - before)
            measure.hold(controller.calls)


asyncio.run(main())
