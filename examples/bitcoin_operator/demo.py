"""``make demo-bitcoin``: real bitcoin daemons as process pods, and the operator that connects them, from an empty cluster to an empty one.

Exit status 0 if every step reached its goal, 1 if one did not. All programs are ended in each case, also after Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from rich.console import Console

import kubeloop
from examples.bitcoin_operator.daemon import PACKAGE, VERSION, DaemonUnavailable, install, require_mount_namespaces, write_image_map
from examples.bitcoin_operator.demo_programs import Program, ProgramFailed, python
from examples.bitcoin_operator.demo_steps import STEPS, KubectlFailed, NetworkStage, StepFailed, write_operator_kubeconfig
from examples.bitcoin_operator.demo_steps import install as install_operator
from examples.bitcoin_operator.rpc import RpcClient, RpcError
from examples.sample_controller.kubectl import Kubectl
from examples.sample_controller.view import Outcome, PlainView, closing_table

_FAILURES = (StepFailed, KubectlFailed, ProgramFailed, DaemonUnavailable, RpcError)
_ERRORS = (" ERROR ", " E ")


class Demo:
    """Runs the steps in order, and notes how each ends. The first that fails ends it."""

    def __init__(self, view: PlainView) -> None:
        self._view = view
        self.steps: list[Outcome] = []

    async def run(self) -> bool:
        """Return whether every step reached its goal."""
        try:
            with tempfile.TemporaryDirectory() as home:
                async with AsyncExitStack() as stack:
                    await self._run(Path(home), stack)
        except _FAILURES as error:
            if all(step.state == "done" for step in self.steps):
                # It failed between two steps, or a program did not end.
                self.steps.append(Outcome("end the programs", "failed", str(error)))
            return False
        return True

    async def _run(self, home: Path, stack: AsyncExitStack) -> None:
        kubeconfig, images = home / "kubeconfig", home / "images.yaml"
        await self._step("get a bitcoin daemon", partial(_prepare, images))

        flags = ["--pods", "process", "--image-map", str(images), "--kubeconfig", str(kubeconfig)]
        server = Program("server", python("kubeloop", "server", *flags), ready="ready https", show=self._view.said, shown=_ERRORS)
        stack.push_async_callback(server.stop)

        async def start_server() -> str:
            return (await server.start()).split()[1]

        await self._step("start a server with process pods", start_server)

        rpc = await stack.enter_async_context(RpcClient())
        stage = NetworkStage(Kubectl(kubeconfig, home), self._view.said, server, rpc)
        await self._step("install kind and role", partial(install_operator, stage))

        account = home / "operator"
        words = ["examples.bitcoin_operator", "--kubeconfig", str(account)]
        operator = Program("operator", python(*words), ready="caches are synced", show=self._view.said, shown=_ERRORS)
        stack.push_async_callback(operator.stop)

        async def start_operator() -> str:
            await write_operator_kubeconfig(stage, account)
            await operator.start()
            return "it has a token of service account bitcoin-controller"

        await self._step("start the operator", start_operator)
        try:
            for title, action in STEPS:
                await self._step(title, partial(action, stage))
        except _FAILURES:
            await stage.diagnose()
            self._view.said(f"the last lines of the operator:\n{operator.last_lines()}")
            raise

        async def stop_operator() -> str:
            await operator.stop()
            if any("Forbidden" in line for line in operator.lines):
                raise StepFailed("the operator lacks a right; its log says which")
            return "exit status 0; its role had all rights that it needed"

        await self._step("stop the operator", stop_operator)

    async def _step(self, title: str, action: Callable[[], Awaitable[str]]) -> None:
        step = Outcome(title)
        self.steps.append(step)
        self._view.began(step)
        began = time.monotonic()
        try:
            step.result = await action()
            step.state = "done"
        except _FAILURES as error:
            step.result, step.state = str(error), "failed"
            raise
        except asyncio.CancelledError:
            step.state = "interrupted"
            raise
        finally:
            step.seconds = time.monotonic() - began
            self._view.ended(step)


async def _prepare(images: Path) -> str:
    require_mount_namespaces()
    write_image_map(images, install())
    return f"{PACKAGE} {VERSION}"


def main() -> int:
    console = Console()
    demo = Demo(PlainView(console))
    began = time.monotonic()
    succeeded = kubeloop.run(demo.run())
    console.print(closing_table(demo.steps))
    failed = [step.title for step in demo.steps if step.state != "done"]
    text = f"failed: {failed[-1]}" if failed else f"every step reached its goal in {time.monotonic() - began:.0f} s"
    console.print(text, style="green" if succeeded else "bold red")
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
