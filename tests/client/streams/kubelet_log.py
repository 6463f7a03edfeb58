"""A container's log as a kubelet serves it: times with nine digits, ``sinceTime`` in whole seconds, tail, follow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


class KubeletLog:
    """Set ``kubelet.read_log`` to ``serve``. Lines are written with ``write``; ``end`` is the container's end."""

    def __init__(self) -> None:
        self.lines: list[tuple[datetime, str]] = []
        self.asked: list[dict[str, list[str]]] = []
        self._news = asyncio.Condition()
        self._ended = False

    async def write(self, text: str, at: float) -> None:
        """A line written ``at`` seconds after the container's start."""
        self.lines.append((START + timedelta(seconds=at), text))
        async with self._news:
            self._news.notify_all()

    async def end(self) -> None:
        self._ended = True
        async with self._news:
            self._news.notify_all()

    async def serve(self, query: dict[str, list[str]]) -> AsyncIterator[bytes]:
        self.asked.append(query)
        sent = 0
        if "sinceTime" in query:
            since = datetime.fromisoformat(query["sinceTime"][0])
            while sent < len(self.lines) and self.lines[sent][0] < since:
                sent += 1
        if "tailLines" in query:
            sent = max(sent, len(self.lines) - int(query["tailLines"][0]))
        while True:
            while sent < len(self.lines):
                moment, text = self.lines[sent]
                sent += 1
                stamp = f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06}000Z " if "timestamps" in query else ""
                yield f"{stamp}{text}\n".encode()
            if "follow" not in query or self._ended:
                return
            async with self._news:
                while not self._has_news(sent):
                    await self._news.wait()

    def _has_news(self, sent: int) -> bool:
        return self._ended or sent < len(self.lines)
