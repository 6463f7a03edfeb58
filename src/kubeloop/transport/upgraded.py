"""A connection after a change of protocol (101): bytes in both directions, without HTTP framing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kubeloop.meta.errors import TransportError

if TYPE_CHECKING:
    from kubeloop.transport.round_tripper import ResponseHead


class NotUpgradedError(TransportError):
    """The server did not change the protocol (a status below 400 that is not 101)."""


class Upgraded:
    """Made by ``Transport.upgrade``; ends at once with its block: close the protocol, and read the reply, before.

    Guarantees
        ``read`` begins with the first byte after the response's head, however early it arrived.
        ``write`` waits while the peer does not read. At most about 1 MiB is buffered for reading, then the peer has to wait.

    Not guaranteed
        Framing, pings and timeouts belong to the new protocol. One task reads, one writes.
    """

    def __init__(self, answer: ResponseHead) -> None:
        self._answer = answer
        self.headers: Mapping[str, str] = answer.headers
        """The headers of the response 101."""

    async def read(self) -> bytes:
        """Return the data received since the last call, or wait for more; empty when the peer has closed the connection.

        Raises:
            TransportError: the connection broke.
        """
        return await self._answer.chunk()

    async def write(self, data: bytes) -> None:
        """Send data; return when the peer accepts still more.

        Raises:
            TransportError: the connection has ended.
        """
        await self._answer.write(data)

    def close(self) -> None:
        """End the connection at once. The block does it too."""
        self._answer.close()
