"""The socket's side of a protocol, without a socket."""

from __future__ import annotations

import asyncio
from typing import Any


class Pipe(asyncio.Transport):
    """The socket's side of a wire: remembers what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False
        self.reading = True

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True
