"""kr8s: one pod, from the kubeconfig."""

import asyncio
import sys

import kr8s
from kr8s.asyncio.objects import Pod


async def main() -> None:
    pod = await Pod.get(sys.argv[2], namespace=sys.argv[1], api=await kr8s.asyncio.api())
    assert pod.spec.containers


asyncio.run(main())
