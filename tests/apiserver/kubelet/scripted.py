"""A kubelet for tests of the streams themselves: the server of ``kubeloop.testing``, with one log and one command for all containers.

Commands run as processes of this machine; tests set ``log``, ``read_log``, ``command``, ``attached`` and ``refusal`` as they need.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType

from kubeloop.kubelet.streaming import TUNNEL, V4, V5, WEBSOCKETS, CommandHandler, Terminal
from kubeloop.serving.answer import Answer
from kubeloop.testing.kubelet_containers import run_process
from kubeloop.testing.kubelet_server import KubeletRequest, KubeletServer

__all__ = ["TUNNEL", "V4", "V5", "WEBSOCKETS", "ScriptedKubelet", "Terminal", "run_process"]


class ScriptedKubelet(KubeletServer):
    """``async with``; then ``port`` serves."""

    def __init__(self, *, cwd: Path | None = None, client_authority: bytes = b"") -> None:
        super().__init__(host="0.0.0.0", client_authority=client_authority)
        self.log: list[bytes] = [b"one\n", b"two\n"]
        self.log_goes_on = asyncio.Event()
        self.read_log: Callable[[dict[str, list[str]]], AsyncIterator[bytes]] | None = None
        self.refusal: Answer | None = None
        self.refuses_websockets = False
        self.command: CommandHandler = lambda command, terminal: run_process(command, terminal, cwd)
        self.attached: CommandHandler = self._echo

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.log_goes_on.set()
        await super().__aexit__(kind, error, trace)

    def answer(self, request: KubeletRequest) -> Answer | None:
        if self.refuses_websockets and request.headers.get("upgrade", "").lower() == "websocket":
            return Answer(403, body=b"no WebSockets here", content_type="text/plain")
        if self.refusal is not None:
            return Answer(self.refusal.status, body=self.refusal.body, content_type=self.refusal.content_type)
        return None

    def log_of(self, request: KubeletRequest) -> AsyncIterator[bytes]:
        return self.read_log(request.query) if self.read_log is not None else self._lines("follow" in request.query)

    def exec_of(self, request: KubeletRequest) -> CommandHandler:
        return self.command

    def attach_of(self, request: KubeletRequest) -> CommandHandler:
        return self.attached

    async def connect(self, request: KubeletRequest, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port)

    async def _lines(self, follow: bool) -> AsyncIterator[bytes]:
        for line in self.log:
            yield line
        if follow:
            await self.log_goes_on.wait()
            yield b"later\n"

    @staticmethod
    async def _echo(command: list[str], terminal: Terminal) -> int:
        await terminal.print("attached\n")
        while data := await terminal.input():
            await terminal.print(data.upper())
        return 0
