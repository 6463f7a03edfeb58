"""Splits a stream of bytes into watch frames: one JSON document per line, wherever the transport splits the stream.

The newline is the only separator, because JSON escapes a newline inside a string (RFC 8259, section 7); this module never parses.
"""

from __future__ import annotations

from kubeloop.meta.errors import DecodeError

#: An object is at most 3 MiB at the server's front door; an event repeats it once. A longer line is not a watch event.
MAX_FRAME = 64 * 1024 * 1024


class FrameSplitter:
    """Splits the body of a watch. ``feed`` takes a chunk and returns the frames that are complete, as views without their newline.

    Guarantees
        Frames come in order, each exactly once, wherever the chunks end; empty lines are skipped.
        A long frame that arrives in many chunks is joined once, not once per chunk.

    Raises
        DecodeError: a frame is longer than ``MAX_FRAME``.
    """

    __slots__ = ("_parts", "_waiting")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._waiting = 0

    @property
    def pending(self) -> int:
        """The number of bytes of the last, unfinished frame."""
        return self._waiting

    def feed(self, chunk: bytes) -> list[memoryview]:
        frames: list[memoryview] = []
        end = chunk.find(b"\n")
        if end >= 0:
            if self._parts:
                chunk = b"".join((*self._parts, chunk))
                end += self._waiting
                self._parts.clear()
                self._waiting = 0
            view = memoryview(chunk)
            at = 0
            # find() rather than split(): it uses memchr and copies nothing.
            while end >= 0:
                if end > at:
                    frames.append(view[at:end])
                at = end + 1
                end = chunk.find(b"\n", at)
            chunk = chunk[at:]
        if chunk:
            self._parts.append(chunk)
            self._waiting += len(chunk)
            if self._waiting > MAX_FRAME:
                raise DecodeError(f"a watch frame of more than {MAX_FRAME >> 20} MiB: the stream is not a watch of newline-separated JSON")
        return frames
