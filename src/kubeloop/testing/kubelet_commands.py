"""Commands in containers of a scripted kubelet: the handlers' streams, and real processes as handlers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kubeloop.meta.errors import KubeloopError
from kubeloop.tasks import end_tasks, finish, result_of

_LOG = logging.getLogger("kubeloop.testing")


@dataclass
class Terminal:
    """The streams of one exec or attach: standard input, output and error, and the window's sizes.

    ``sizes`` has ``{"Width": 80, "Height": 24}`` as JSON for each size that the client sends.
    """

    stdin: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    sizes: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    write: Callable[[str, bytes], Awaitable[None]] = field(init=False)

    async def print(self, text: str | bytes, stream: Literal["stdout", "stderr"] = "stdout") -> None:
        """Writes to the client; what it does not read goes nowhere."""
        await self.write(stream, text.encode() if isinstance(text, str) else text)

    async def input(self) -> bytes:
        """The next bytes of standard input; empty at its end and from then on."""
        data = await self.stdin.get()
        if data is None:
            self.stdin.put_nowait(None)
        return data or b""


#: Runs one command (its words, its streams) and returns its exit code.
CommandHandler = Callable[[list[str], Terminal], Awaitable[int]]


async def run_process(command: Sequence[str], terminal: Terminal, cwd: Path | None = None) -> int:
    """Runs the command as a process of this machine; returns its exit code. The process has ended when this returns or raises."""
    # A second cancellation while asyncio starts the process would leave the process behind.
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=cwd
        )
    )
    tasks: list[asyncio.Future[None]] = []
    try:
        process = await result_of(starting)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        copying = [
            asyncio.ensure_future(_copy(process.stdout, terminal, "stdout")),
            asyncio.ensure_future(_copy(process.stderr, terminal, "stderr")),
        ]
        tasks += [asyncio.ensure_future(_feed(process.stdin, terminal)), *copying]
        await asyncio.gather(*copying)
        return await process.wait()
    finally:
        await finish(_ended(starting, tasks))


async def _feed(stdin: asyncio.StreamWriter, terminal: Terminal) -> None:
    try:
        while data := await terminal.input():
            stdin.write(data)
            await stdin.drain()
        stdin.close()
    except ConnectionError:
        pass


async def _copy(reader: asyncio.StreamReader, terminal: Terminal, name: str) -> None:
    while data := await reader.read(1 << 16):
        await terminal.write(name, data)


async def _ended(starting: asyncio.Future[asyncio.subprocess.Process], tasks: Sequence[asyncio.Future[None]]) -> None:
    """Ends the process and its tasks. Pipes are read to their end, because unread data keeps them open."""
    await asyncio.wait((starting,))
    if starting.exception() is not None:
        return
    process = starting.result()
    await end_tasks(*tasks, expected=(OSError, KubeloopError), logger=_LOG)
    if process.returncode is None:
        process.kill()
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.close()
    await asyncio.gather(process.stdout.read(), process.stderr.read(), process.wait())
