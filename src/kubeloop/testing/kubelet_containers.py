"""Containers of a scripted kubelet: processes that they run, and their logs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kubeloop.kubelet.streaming import Terminal
from kubeloop.meta.errors import KubeloopError
from kubeloop.tasks import end_tasks, finish, result_of

_LOG = logging.getLogger("kubeloop.testing")


async def run_process(command: Sequence[str], terminal: Terminal, cwd: Path | None = None) -> int:
    """Run the command as a process of this machine and return its exit code. The process has ended when this returns or raises."""
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
    """End the process and its tasks. Pipes are read to their end, because unread data keeps them open."""
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


class ContainerLog:
    """Lines that a simulated container wrote, oldest first. ``write`` adds one; clients that follow the log read it at once.

    Example:
        >>> log = ContainerLog(["starting", "listening on 8080"])
        >>> log.write("GET / 200")
        >>> [text for _, text in log.lines]
        ['starting', 'listening on 8080', 'GET / 200']
    """

    def __init__(self, lines: Iterable[str] = ()) -> None:
        #: Time and text (without the newline) of each line.
        self.lines: list[tuple[datetime, str]] = []
        #: The query of each request, oldest first.
        self.queries: list[dict[str, list[str]]] = []
        self._news = asyncio.Event()
        self._ended = False
        for line in lines:
            self.write(line)

    def write(self, text: str, at: datetime | None = None) -> None:
        """Add a line.

        Args:
            text: Its text without the newline.
            at: When it was written, with a time zone; None: now.
        """
        self.lines.append((at or datetime.now(UTC), text))
        self._wake()

    def end(self) -> None:
        """End the streams of clients that follow the log, after the last line.

        Clients that resume ask again for as long as the pod's status says that the container runs; ``end_pod`` ends both.
        """
        self._ended = True
        self._wake()

    async def serve(self, query: dict[str, list[str]]) -> AsyncIterator[bytes]:
        """Return the log as the response to a request.

        Args:
            query: ``follow``, ``timestamps``, ``tailLines``, ``sinceTime``, ``sinceSeconds`` and ``limitBytes``, as in the API.
        """
        self.queries.append(query)
        sent, left = self._first(query), int(query["limitBytes"][0]) if "limitBytes" in query else None
        while True:
            while sent < len(self.lines):
                moment, text = self.lines[sent]
                sent += 1
                line = f"{_stamp(moment) if _says(query, 'timestamps') else ''}{text}\n".encode()
                if left is not None:
                    line, left = line[:left], left - len(line[:left])
                if line:
                    yield line
                if left == 0:
                    return
            if not _says(query, "follow") or self._ended:
                return
            await self._news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _first(self, query: dict[str, list[str]]) -> int:
        first = 0
        since = datetime.fromisoformat(query["sinceTime"][0]) if "sinceTime" in query else None
        if "sinceSeconds" in query:
            since = datetime.now(UTC) - timedelta(seconds=int(query["sinceSeconds"][0]))
        while since is not None and first < len(self.lines) and self.lines[first][0] < since:
            first += 1
        if "tailLines" in query:
            first = max(first, len(self.lines) - int(query["tailLines"][0]))
        return first


def _says(query: dict[str, list[str]], name: str) -> bool:
    return name in query and query[name][0].lower() not in ("false", "0")


def _stamp(moment: datetime) -> str:
    """Return the time in RFC 3339 with nine fractional digits, as kubelets write it."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06}000Z "
