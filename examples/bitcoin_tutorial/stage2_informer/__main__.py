"""``python -m examples.bitcoin_tutorial.stage2_informer``: print the changes of networks, and the keys that workers get."""

from __future__ import annotations

import asyncio

import click

import kubeloop
from examples.bitcoin_tutorial.stage1_types.types import BitcoinNetwork
from kubeloop import ALL_NAMESPACES, Client, InformerFactory, ObjectKey
from kubeloop.cache import InformerEvent
from kubeloop.workqueue import WorkQueue

WORKERS = 5


class Printer:
    """The handlers of the informer and the workers of the queue between them."""

    def __init__(self) -> None:
        self.queue = WorkQueue[ObjectKey]()

    def added(self, event: InformerEvent[BitcoinNetwork]) -> None:
        print("ADD handler called")
        self.queue.add(event.key)

    def updated(self, event: InformerEvent[BitcoinNetwork]) -> None:
        print("UPDATE handler called")
        self.queue.add(event.key)

    def deleted(self, event: InformerEvent[BitcoinNetwork]) -> None:
        print("DELETE handler called")
        self.queue.add(event.key)

    async def work(self) -> None:
        """Process keys until the program ends."""
        while True:
            key = await self.queue.get()
            print(f"Got object {key} from the work queue")
            self.queue.done(key)


@click.command()
@click.option("--resync", default=30.0, show_default=True, help="Seconds between resyncs; 0: none.")
def main(resync: float) -> None:
    """Print the changes of networks until Ctrl-C."""

    async def run() -> None:
        printer = Printer()
        async with Client.from_config() as client, InformerFactory(client, resync=resync) as informers:
            networks = informers.for_kind(BitcoinNetwork, namespace=ALL_NAMESPACES)
            networks.on_event(added=printer.added, updated=printer.updated, deleted=printer.deleted)
            await informers.wait_synced()
            print(f"Entering main loop, {len(networks.lister)} networks in the cache")
            async with asyncio.TaskGroup() as workers:
                for _ in range(WORKERS):
                    workers.create_task(printer.work())

    kubeloop.run(run())


if __name__ == "__main__":
    main()
