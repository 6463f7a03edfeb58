"""``python -m examples.api_proxy_tutorial.stage4_ghosts.cached KUBECONFIG``: print the pods that an informer has in its cache."""

from __future__ import annotations

import asyncio
import sys

import kubeloop
from kubeloop import Client, InformerFactory
from kubeloop.api.core.v1 import Pod
from kubeloop.cache import InformerEvent


async def main() -> None:
    async with Client.from_config(sys.argv[1]) as client, InformerFactory(client) as informers:
        pods = informers.for_kind(Pod)

        def show(event: InformerEvent[Pod]) -> None:
            names = " ".join(sorted(pod.metadata.name or "" for pod in pods.lister.list()))
            print(f"{event.type.value} {event.key.name}; cache: {names or 'empty'}", flush=True)

        pods.on_event(added=show, updated=show, deleted=show)
        await asyncio.Event().wait()


if __name__ == "__main__":
    kubeloop.run(main())
