"""Runs kubeloop's scheduler alone, against the server of a kubeconfig."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from kubeloop.client import Client
from kubeloop.controller import Manager
from kubeloop.controlplane.scheduling.scheduler import Scheduler


async def main(kubeconfig: str) -> None:
    """Run until a signal stops it."""
    async with Client.from_config(Path(kubeconfig)) as client:
        await Manager(client, [Scheduler()], grace=1).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
