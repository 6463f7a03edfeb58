"""``make demo-proxy``: an embedded server, ``kubeloop proxy`` in front of it, and clients that see what its rules say.

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
from examples.api_proxy.steps import ROUTER, STEPS, ProxyStage, create
from examples.bitcoin_operator.demo_programs import Program, ProgramFailed, python
from examples.sample_controller.kubectl import Kubectl, KubectlFailed
from examples.sample_controller.steps import StepFailed
from examples.sample_controller.view import Outcome, PlainView, closing_table

_RULES = Path(__file__).with_name("rules.yaml")
_FAILURES = (StepFailed, KubectlFailed, ProgramFailed, OSError)
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 21\r\nConnection: close\r\n\r\nhello from the router"


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
                self.steps.append(Outcome("end the programs", "failed", str(error)))
            return False
        return True

    async def _run(self, home: Path, stack: AsyncExitStack) -> None:
        cluster = home / "cluster"
        server = Program("server", python("kubeloop", "server", "--kubeconfig", str(cluster)), ready="ready https", show=self._view.said)
        stack.push_async_callback(server.stop)
        await self._step("start an API server", partial(_started, server))

        port = await stack.enter_async_context(_Router())
        rules = home / "rules.yaml"
        rules.write_text(_RULES.read_text().replace("port: 8080", f"port: {port}"))
        users = [f"--user-kubeconfig={user}:{group}={home / user}" for user, group in (("ann", "devs"), ("bob", "ops"))]
        options = ["--rules", str(rules), "--kubeconfig", str(cluster), "--kubeconfig-out", str(home / "clients"), *users]
        shown = ("WARNING", "ERROR", "loaded")
        proxy = Program("proxy", python("kubeloop", "proxy", *options), ready="ready https", show=self._view.said, shown=shown)
        stack.push_async_callback(proxy.stop)
        await self._step("start kubeloop proxy", partial(_started, proxy))

        direct, ann, bob = (Kubectl(home / name, home) for name in ("cluster", "ann", "bob"))
        stage = ProxyStage(direct, ann, bob, proxy, rules, port, self._view.said, stack)
        await self._step("create objects and roles", partial(create, stage))
        for title, action in STEPS:
            await self._step(title, partial(action, stage))

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


class _Router:
    """A small HTTP server: the place to which the rules lead the endpoints."""

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._answer, ROUTER, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aexit__(self, *error: object) -> None:
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_ANSWER)
        await writer.drain()
        writer.close()


async def _started(program: Program) -> str:
    return (await program.start()).split()[1]


def main(kind: type[Demo] = Demo) -> int:
    """Run a demo, print how its steps ended, and return the exit status. ``kind``: a class with other steps."""
    console = Console()
    demo = kind(PlainView(console))
    began = time.monotonic()
    succeeded = kubeloop.run(demo.run())
    console.print(closing_table(demo.steps))
    failed = [step.title for step in demo.steps if step.state != "done"]
    text = f"failed: {failed[-1]}" if failed else f"every step reached its goal in {time.monotonic() - began:.0f} s"
    console.print(text, style="green" if succeeded else "bold red")
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
