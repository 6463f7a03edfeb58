"""The open watches of a proxy. When the rules change, those end whose objects may look different now."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from kubeloop.codec import protobuf
from kubeloop.endpoints.encoding import encode
from kubeloop.endpoints.responses import status_object
from kubeloop.meta.errors import TransportError
from kubeloop.proxy.continuity import rules_changed
from kubeloop.serving.answer import Aborted, FrameWriter
from kubeloop.transport.connection import PooledAnswer

#: Bytes of the length before each frame of a protobuf watch.
_LENGTH: Final = 4


class UpstreamWatch:
    """A watch at the API server.

    Attributes:
        expired: The rules have changed. The watch is closed, and its client gets 410.
    """

    def __init__(self, owner: UpstreamWatches, answer: PooledAnswer, resource: tuple[str, str, str]) -> None:
        self._owner = owner
        self._answer = answer
        self.resource = resource
        self.expired = False

    async def chunk(self) -> bytes:
        """Return the next bytes of the watch, or empty bytes at its end.

        Raises:
            TransportError: The watch broke off, or expired.
        """
        return await self._answer.chunk()

    async def pass_on(self, take: Callable[[bytes], bool], ready: Callable[[], Awaitable[None]]) -> None:
        """Give the bytes of the watch to ``take`` as they arrive: see ``PooledAnswer.pass_on``.

        Raises:
            TransportError: The watch broke off, or expired.
        """
        await self._answer.pass_on(take, ready)

    def expire(self) -> None:
        """End the watch because the rules have changed."""
        self.expired = True
        self._answer.close()

    def close(self) -> None:
        """Close the watch at the API server."""
        self._owner.remove(self)
        self._answer.close()


class UpstreamWatches:
    """The watches that run at the moment."""

    def __init__(self) -> None:
        self._open: set[UpstreamWatch] = set()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, answer: PooledAnswer, group: str, version: str, resource: str) -> UpstreamWatch:
        """Add a watch.

        Args:
            answer: The API server's response.
            group: Group of the resource.
            version: Version of the resource.
            resource: Name of the resource in paths.

        Returns:
            The watch; its ``close`` removes it.
        """
        opened = UpstreamWatch(self, answer, (group, version, resource))
        self._open.add(opened)
        return opened

    def remove(self, opened: UpstreamWatch) -> None:
        self._open.discard(opened)

    def expire(self, concerns: Callable[[str, str, str], bool]) -> int:
        """End the watches of the resources for which ``concerns(group, version, resource)`` is true. Return their number."""
        ended = [opened for opened in self._open if concerns(*opened.resource)]
        for opened in ended:
            opened.expire()
        return len(ended)


class PassedEvents:
    """The bytes of a watch without rules. If rules come to concern it, its last event is 410, so that the client lists again.

    Args:
        opened: The watch.
        media_type: The media type of its frames: JSON, or protobuf.
    """

    def __init__(self, opened: UpstreamWatch, media_type: str) -> None:
        self._opened = opened
        self._is_protobuf = media_type.startswith(protobuf.MEDIA_TYPE)
        self._frames: _FrameBoundaries = _ProtobufBoundaries() if self._is_protobuf else _FrameBoundaries()

    async def pull(self) -> AsyncIterator[bytes]:
        """Yield the bytes, and close the watch."""
        try:
            while chunk := await self._opened.chunk():
                self._frames.feed(chunk)
                yield chunk
        except TransportError as error:
            yield self._last_event(error)
        finally:
            self._opened.close()

    async def push(self, client: FrameWriter) -> None:
        """Write the bytes to a connection, and close the watch."""

        def take(chunk: bytes) -> bool:
            taken = client.push(client.encode(chunk))
            if taken:
                self._frames.feed(chunk)
            return taken

        try:
            await self._opened.pass_on(take, client.drained)
        except TransportError as error:
            await client.write(client.encode(self._last_event(error)))
        finally:
            self._opened.close()

    def _last_event(self, error: TransportError) -> bytes:
        """Return the event for a watch that was ended because the rules have changed.

        Raises:
            Aborted: It broke off otherwise; or in the middle of a frame, where no event can follow. The client resumes, and then gets 410.
        """
        if not self._opened.expired or not self._frames.complete:
            raise Aborted(str(error)) from None
        status = status_object(rules_changed().status)
        if self._is_protobuf:
            return protobuf.encode_event("ERROR", protobuf.encode(status))
        return encode({"type": "ERROR", "object": status}) + b"\n"


class _FrameBoundaries:
    """Follows the frames of a JSON watch: a frame ends with a newline."""

    complete = True

    def feed(self, chunk: bytes) -> None:
        self.complete = chunk.endswith(b"\n")


class _ProtobufBoundaries(_FrameBoundaries):
    """Follows the frames of a protobuf watch: each begins with its length."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0

    def feed(self, chunk: bytes) -> None:
        at = 0
        while at < len(chunk):
            if self._left:
                taken = min(self._left, len(chunk) - at)
                self._left -= taken
                at += taken
                continue
            needed = _LENGTH - len(self._head)
            self._head += chunk[at : at + needed]
            at += needed
            if len(self._head) == _LENGTH:
                self._left = int.from_bytes(self._head, "big")
                self._head = b""
        self.complete = not self._left and not self._head
