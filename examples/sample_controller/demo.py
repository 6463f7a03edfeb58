"""``make demo``: a server, kubectl and the sample controller at work, from an empty cluster to an empty cluster.

Exit status 0 when every step reached its goal, 1 when one did not.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from rich.console import Console

from examples.sample_controller.controller import FooController
from examples.sample_controller.kubectl import Kubectl
from examples.sample_controller.steps import STEPS, KubectlFailed, Stage, StepFailed, install
from examples.sample_controller.view import LiveView, Outcome, PlainView, Progress, View, closing_table
from kubeloop import Client, InformerFactory, KubeloopError, Manager
from kubeloop.testing import LocalCluster


class Demo:
    """Runs the steps in order and notes how each ends; the first that fails ends it."""

    def __init__(self, view: View, progress: Progress) -> None:
        self.view, self.progress = view, progress

    async def run(self) -> bool:
        """Whether every step reached its goal."""
        try:
            with tempfile.TemporaryDirectory() as home:
                await self._run(Path(home))
        except (StepFailed, KubectlFailed, KubeloopError):
            return False
        return True

    async def _run(self, home: Path) -> None:
        cluster = LocalCluster()

        async def start() -> str:
            await cluster.start()
            return f"{cluster.url} with its own certificates"

        async with cluster.closing():
            await self._step("start an API server", start)
            stage = Stage(Kubectl(cluster.kubeconfig, home), self.view.said)
            await self._step("install the kind Foo", partial(install, stage))
            async with Client.from_config(cluster.kubeconfig) as client, InformerFactory(client, resync=30) as informers:
                manager = Manager(client, [FooController()], informers=informers)
                self.progress.informers, self.progress.manager = informers, manager

                async def begin() -> str:
                    await manager.start()
                    return "caches are synced, 2 workers"

                await self._step("start the controller", begin)
                try:
                    for title, action in STEPS:
                        await self._step(title, partial(action, stage))
                finally:
                    await manager.stop()

    async def _step(self, title: str, action: Callable[[], Awaitable[str]]) -> None:
        step = Outcome(title)
        self.progress.steps.append(step)
        self.view.began(step)
        began = time.monotonic()
        try:
            step.result = await action()
            step.state = "done"
        except (StepFailed, KubectlFailed, KubeloopError) as error:
            step.result, step.state = str(error), "failed"
            raise
        finally:
            step.seconds = time.monotonic() - began
            self.view.ended(step)


class ViewHandler(logging.Handler):
    """Shows log records as lines of the view."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        self._view.said(f"  log: {record.getMessage()}")


def main() -> int:
    console = Console()
    progress = Progress()
    view: View = LiveView(console, progress) if console.is_terminal else PlainView(console)
    # What the controller logs belongs to the show: on stderr it would tear the live view apart.
    logging.basicConfig(level=logging.WARNING, handlers=[ViewHandler(view)])
    with view:
        good = asyncio.run(Demo(view, progress).run())
    console.print(closing_table(progress.steps))
    console.print("every step reached its goal" if good else "a step did not reach its goal", style="green" if good else "bold red")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
