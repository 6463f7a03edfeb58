"""A file or folder of this machine as the pieces of a tar archive, read as they are sent."""

from __future__ import annotations

import asyncio
import os
import stat
import tarfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import IO, Any

from kubeloop.client.streams.errors import CopyError
from kubeloop.tasks import result_of, wait_all

_PIECE = 256 * 1024
_BLOCK = tarfile.BLOCKSIZE
#: Names of what was left out that are kept.
_NAMED = 1000


class Packing:
    """What ``tar -x`` makes ``name`` of. Links stay links; of folders only empty ones are told, so that the modes of those there stay.

    Raises (while it is read)
        CopyError: something cannot be read, or changes meanwhile.
    """

    def __init__(self, source: Path, name: str) -> None:
        self.files = 0
        self.bytes = 0
        self.skipped: list[str] = []
        self.path, self.done, self.size = "", 0, 0
        self._source = source
        self._name = name

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The archive, in order. ``path``, ``done`` and ``size`` say where it is."""
        walk = _walk(self._source, "")
        while (found := await _read(next, walk, None)) is not None:
            path, relative, status = found
            self.path, self.done, self.size = relative or path.name, 0, 0
            info = await _read(_describe, path, f"{self._name}/{relative}" if relative else self._name, status)
            if info is None:
                if len(self.skipped) < _NAMED:
                    self.skipped.append(f"{path}: neither file, folder nor link")
                continue
            yield info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
            if info.isreg():
                async with aclosing(self._content(path, info.size)) as content:
                    async for piece in content:
                        yield piece
        yield bytes(2 * _BLOCK)

    async def _content(self, path: Path, size: int) -> AsyncGenerator[bytes, None]:
        self.size = size
        file = await _opened(path)
        try:
            while self.done < size:
                piece = await _read(file.read, min(_PIECE, size - self.done))
                if not piece:
                    raise CopyError(f"{path} became shorter while it was copied: {self.done} of {size} bytes")
                self.done += len(piece)
                self.bytes += len(piece)
                yield piece
        finally:
            file.close()
        self.files += 1
        if size % _BLOCK:
            yield bytes(_BLOCK - size % _BLOCK)


_Found = tuple[Path, str, os.stat_result]


def _walk(source: Path, relative: str) -> Iterator[_Found]:
    """Each file, link and empty folder, in the order of names."""
    left = [(source, relative)]
    while left:
        path, relative = left.pop()
        status = path.lstat()
        names = sorted(os.listdir(path), reverse=True) if stat.S_ISDIR(status.st_mode) else []  # noqa: PTH208 - names, not paths
        left += [(path / name, f"{relative}/{name}" if relative else name) for name in names]
        if not names:
            yield path, relative, status


def _describe(path: Path, name: str, status: os.stat_result) -> tarfile.TarInfo | None:
    """The header; None for what has no content that could be copied."""
    info = tarfile.TarInfo(name)
    mode = status.st_mode
    info.mode, info.uid, info.gid, info.mtime = stat.S_IMODE(mode), status.st_uid, status.st_gid, int(status.st_mtime)
    if stat.S_ISREG(mode):
        info.size = status.st_size
    elif stat.S_ISDIR(mode):
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(mode):
        info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
    else:
        return None
    return info


async def _opened(path: Path) -> IO[bytes]:
    opening: asyncio.Future[IO[bytes]] = asyncio.ensure_future(_read(path.open, "rb"))
    try:
        return await result_of(opening)
    except asyncio.CancelledError:
        # A thread cannot be stopped: the file is open in a moment, and nobody else would close it.
        try:
            await wait_all(opening)
        finally:
            if opening.exception() is None:
                opening.result().close()
        raise


async def _read(call: Callable[..., Any], *args: Any) -> Any:
    """What the disk says, asked in a thread."""
    try:
        return await asyncio.to_thread(call, *args)
    except OSError as error:
        raise CopyError(f"{error.filename or 'a file'}: {error.strerror or error}") from error
