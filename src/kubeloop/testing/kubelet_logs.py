"""The log of a container of a scripted kubelet: lines with times, read as a kubelet serves them, and followed while it grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta


class ContainerLog:
    """Lines that a container wrote, oldest first. ``write`` adds one.

    ::

        log = kubelet.on_logs("web-0", ["starting", "listening on 8080"])
        log.write("GET / 200")  # clients that follow the log read it now
    """

    def __init__(self, lines: Iterable[str] = ()) -> None:
        #: When each line was written, and its text without the newline.
        self.lines: list[tuple[datetime, str]] = []
        #: The query of each request, oldest first.
        self.queries: list[dict[str, list[str]]] = []
        self._news = asyncio.Event()
        self._ended = False
        for line in lines:
            self.write(line)

    def write(self, text: str, at: datetime | None = None) -> None:
        """Adds a line.

        Args:
            text: Its text without the newline.
            at: When it was written, with a time zone; None: now.
        """
        self.lines.append((at or datetime.now(UTC), text))
        self._wake()

    def end(self) -> None:
        """Ends what follows the log, after the last line.

        Clients that resume ask again for as long as the pod's status says that the container runs; ``end_pod`` ends both.
        """
        self._ended = True
        self._wake()

    async def serve(self, query: dict[str, list[str]]) -> AsyncIterator[bytes]:
        """The log as the answer to a request.

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
    """With nine digits of a second, as kubelets write it."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06}000Z "
