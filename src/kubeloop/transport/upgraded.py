"""A connection after the server changed to another protocol (101): bytes both ways, no framing of HTTP left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kubeloop.meta.errors import TransportError

if TYPE_CHECKING:
    from kubeloop.transport.round_tripper import Answer


class NotUpgradedError(TransportError):
    """The server answered the request as if no other protocol had been asked for (a status below 400 that is not 101)."""


class Upgraded:
    """Made by ``Transport.upgrade``; ends with its block, at once: say goodbye as the protocol does, and read the answer, before.

    Guarantees
        ``read`` begins with the first byte behind the answer's head, however early it came.
        ``write`` holds the caller back while the peer does not read. At most about 1 MiB waits here to be read, then the peer is held back.

    Not guaranteed
        Framing, pings, deadlines: they are the protocol's that was changed to. One task reads, one writes.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.headers: Mapping[str, str] = answer.headers
        """Those of the answer 101."""

    async def read(self) -> bytes:
        """What has come since the last call, or the next piece; empty when the peer has ended the connection in order.

        Raises:
            TransportError: the connection broke.
        """
        return await self._answer.chunk()

    async def write(self, data: bytes) -> None:
        """Send; returns when the peer may be sent still more.

        Raises:
            TransportError: the connection has ended.
        """
        await self._answer.write(data)

    def close(self) -> None:
        """End the connection now. The block does it too."""
        self._answer.close()
