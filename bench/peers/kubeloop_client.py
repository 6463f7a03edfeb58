"""kubeloop: the public informer with an index by node and a handler; or one typed GET.

--read                 the handler makes both typed objects of each update, old and new
--keep-managed-fields  they are stored, as they are not by default
--page N               a list in pages of N objects instead of a streamed one
"""

from __future__ import annotations

from bench.peers import measure

parser = measure.parser()
parser.add_argument("--read", action="store_true")
parser.add_argument("--keep-managed-fields", action="store_true")
parser.add_argument("--page", type=int, default=0)
args = measure.arguments(parser)
whole = measure.Meter()

import asyncio  # noqa: E402 - the meter of the start counts the imports

from kubeloop.api.core.v1 import Pod  # noqa: E402
from kubeloop.client import ALL_NAMESPACES, Client  # noqa: E402
from kubeloop.config import ClusterConfig  # noqa: E402
from kubeloop.transport import Transport  # noqa: E402

config = ClusterConfig(server=args.server, insecure_skip_tls_verify=args.server.startswith("https"))


async def get() -> None:
    async with Client(Transport(config)) as client:
        pod = await client.get(Pod, args.name, namespace=args.namespace)
        assert pod.spec is not None
        assert pod.spec.containers
        whole.report("get", 1)


async def inform() -> None:

    from kubeloop.cache import InformerEvent, InformerFactory, WatchPolicy

    done = asyncio.Event()
    added = updated = 0

    def count(_: InformerEvent[Pod]) -> None:
        nonlocal added
        added += 1

    def change(event: InformerEvent[Pod]) -> None:
        nonlocal updated
        updated += 1
        if event.head.resource_version == args.last_rv:
            done.set()

    def read(event: InformerEvent[Pod]) -> None:
        before, now = event.old_object, event.object
        assert before is not None
        assert before.spec is not None
        assert now.status is not None
        change(event)

    async with Client(Transport(config)) as client:
        informers = InformerFactory(client, policy=WatchPolicy(watch_list=not args.page, page_size=args.page))
        pods = informers.for_kind(Pod, indexes={"node": "spec.nodeName"}, managed_fields=args.keep_managed_fields, namespace=ALL_NAMESPACES)
        registration = pods.on_event(added=count, updated=read if args.read else change)
        meter = measure.start()
        stalls = measure.Stalls()
        async with informers:
            await registration.wait_synced()
            meter.report("sync", added)
            measure.check(len(pods.lister), args)
            assert sum(len(pods.lister.heads_by_index("node", node)) for node in pods.lister.index_values("node")) == args.count
            # What the cache does and takes by itself, before a collection and a trim from outside: it packs a part after the sync.
            await asyncio.sleep(0.3)
            longest = stalls.longest_ms
            stalls.end()
            await asyncio.sleep(0.7)
            meter.report("settled", added, longest_stall_ms=longest)
            stalls.begin()
            meter = await asyncio.to_thread(measure.go, args.server)
            await done.wait()
            meter.report("events", updated, longest_stall_ms=stalls.longest_ms)
            head = pods.lister.heads()[0]
            assert pods.lister.get(head.name, head.namespace) is not None
            stalls.end()
            measure.hold(len(pods.lister))


asyncio.run(get() if args.get else inform())
