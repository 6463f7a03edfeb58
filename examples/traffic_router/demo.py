"""``make demo-router``: a rule of nine lines inserts a Router between NGINX and the pods; the ingress controller stays as it is.

Server, process pods, NGINX, proxy and Router are real programs. Exit status 0 if every step reached its goal, 1 if one did not.
All programs are ended in each case, also after Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import json
import socket
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from aiohttp import ClientSession, ClientTimeout, TCPConnector

from examples.api_proxy.demo import Demo, main
from examples.bitcoin_operator.demo_programs import PROJECT, Program, ProgramFailed, python
from examples.sample_controller.kubectl import Kubectl, KubectlFailed
from examples.sample_controller.steps import StepFailed
from examples.traffic_router.steps import HERE, STEPS, RouterStage, create

_ERRORS = (" ERROR ", " E ")


class RouterDemo(Demo):
    """The demo of the Router."""

    async def _run(self, home: Path, stack: AsyncExitStack) -> None:
        kubeconfig, images = home / "cluster", home / "images.yaml"
        images.write_text(_image_map())
        flags = ["--pods", "process", "--image-map", str(images), "--kubeconfig", str(kubeconfig)]
        server = Program("server", python("kubeloop", "server", *flags), ready="ready https", show=self._view.said, shown=_ERRORS)
        stack.push_async_callback(server.stop)
        await self._step("start a server with process pods", partial(_started, server))

        session = await stack.enter_async_context(
            # Each request has its own connection: no connection holds on to one of NGINX's workers.
            ClientSession(connector=TCPConnector(force_close=True), timeout=ClientTimeout(total=10))
        )
        stage = RouterStage(Kubectl(kubeconfig, home), home, self._view.said, session, *_free_ports(), stack)
        await self._step("create an application in two versions", partial(create, stage))
        try:
            for title, action in STEPS:
                await self._step(title, partial(action, stage))
        except (StepFailed, KubectlFailed, ProgramFailed, OSError):
            for program in (stage.controller, stage.proxy, stage.router):
                if program is not None:
                    self._view.said(f"the last lines of the {program.title}:\n{program.last_lines()}")
            raise


async def _started(program: Program) -> str:
    return (await program.start()).split()[1]


def _image_map() -> str:
    """Return the map with the command of the application's image. JSON is YAML."""
    command = [sys.executable, "-S", str(HERE / "web.py")]
    return json.dumps({"images": {"shop/web": {"command": command, "workingDirectory": str(PROJECT)}}})


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for found in (one, other):
            found.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main(RouterDemo))
