"""The program around the controllers of this and all later stages."""

from __future__ import annotations

import logging
import sys
from typing import Any

import kubeloop
from kubeloop import Client, Manager
from kubeloop.controller import ControllerBase


def run(*controllers: ControllerBase[Any]) -> None:
    """Run controllers until SIGINT or SIGTERM, with a log on standard output, in the order of klog's fields."""
    logging.basicConfig(
        stream=sys.stdout, level=logging.INFO, format="%(levelname).1s%(asctime)s %(name)s] %(message)s", datefmt="%m%d %H:%M:%S"
    )

    async def main() -> None:
        async with Client.from_config() as client:
            await Manager(client, list(controllers)).run()

    kubeloop.run(main())
