"""kubeloop: one typed pod, from the kubeconfig."""

import asyncio
import sys

from kubeloop import Client
from kubeloop.api.core.v1 import Pod


async def main() -> None:
    async with Client.from_config() as client:
        pod = await client.get(Pod, sys.argv[2], namespace=sys.argv[1])
        assert pod.spec is not None
        assert pod.spec.containers


asyncio.run(main())
