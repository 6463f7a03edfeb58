"""``python -m examples.what_client_go_sends_tutorial.informer``: the same informer with kubeloop, of the cluster of $KUBECONFIG."""

from __future__ import annotations

import asyncio

import kubeloop
from kubeloop import Client, InformerFactory
from kubeloop.api.core.v1 import Pod


async def main() -> None:
    async with Client.from_config() as client, InformerFactory(client) as informers:
        pods = informers.for_kind(Pod, namespace="default")
        pods.on_event(
            added=lambda event: print("ADD", event.key.name, flush=True),
            updated=lambda event: print("UPDATE", event.key.name, event.object.status.phase, flush=True),
            deleted=lambda event: print("DELETE", event.key, flush=True),
        )
        await informers.wait_synced()
        print("caches are synced", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    kubeloop.run(main())
