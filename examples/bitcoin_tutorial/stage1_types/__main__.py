"""``python -m examples.bitcoin_tutorial.stage1_types``: list the networks of a namespace."""

from __future__ import annotations

import kubeloop
from examples.bitcoin_tutorial.stage1_types.types import BitcoinNetwork
from kubeloop import Client


async def main() -> None:
    async with Client.from_config() as client:
        async for network in client.list(BitcoinNetwork):
            print(f"Have item {network.metadata.name} with {network.spec.nodes} nodes")


if __name__ == "__main__":
    kubeloop.run(main())
