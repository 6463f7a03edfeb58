"""A container's log for tests of the client: the public ``ContainerLog``, with times that are counted from the container's start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from kubeloop.testing import ContainerLog

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


class KubeletLog:
    """Set ``kubelet.read_log`` to ``serve``. Lines are written with ``write``; ``end`` is the container's end."""

    def __init__(self) -> None:
        self._log = ContainerLog()
        self.lines = self._log.lines
        self.asked = self._log.queries

    async def write(self, text: str, at: float) -> None:
        """A line written ``at`` seconds after the container's start."""
        self._log.write(text, START + timedelta(seconds=at))

    async def end(self) -> None:
        self._log.end()

    def serve(self, query: dict[str, list[str]]) -> AsyncIterator[bytes]:
        return self._log.serve(query)
