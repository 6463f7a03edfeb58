"""Tar archives between this machine and a container: packs a file or folder, and unpacks an archive that is not trusted."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import posixpath
import shutil
import stat
import tarfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import IO, Any

from kubeloop.client.streams.errors import CopyError
from kubeloop.meta import KubeloopError
from kubeloop.tasks import result_of, wait_all

_PIECE = 256 * 1024
_BLOCK = tarfile.BLOCKSIZE
#: Maximum number of skipped entries that are recorded by name.
_NAMED = 1000


class Packing:
    """A tar archive of a file or folder, from which ``tar -x`` creates ``name``.

    Symbolic links stay links. The archive contains only empty folders, so that existing folders in the container keep their modes.

    Raises (while it is read)
        CopyError: A file cannot be read, or changes while it is read.
    """

    def __init__(self, source: Path, name: str) -> None:
        self.files = 0
        self.bytes = 0
        self.skipped: list[str] = []
        self.path, self.done, self.size = "", 0, 0
        self._source = source
        self._name = name

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the archive in order. ``path``, ``done`` and ``size`` show the progress."""
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
    """Yield each file, link and empty folder in the order of names."""
    left = [(source, relative)]
    while left:
        path, relative = left.pop()
        status = path.lstat()
        names = sorted(os.listdir(path), reverse=True) if stat.S_ISDIR(status.st_mode) else []  # noqa: PTH208 - names, not paths
        left += [(path / name, f"{relative}/{name}" if relative else name) for name in names]
        if not names:
            yield path, relative, status


def _describe(path: Path, name: str, status: os.stat_result) -> tarfile.TarInfo | None:
    """Return the tar header of a path; None for a file without content to copy, such as a device."""
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
        # A thread cannot be stopped: it will open the file soon, so this call has to close it.
        try:
            await wait_all(opening)
        finally:
            if opening.exception() is None:
                opening.result().close()
        raise


async def _read(call: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the file system in a thread."""
    try:
        return await asyncio.to_thread(call, *args)
    except OSError as error:
        raise CopyError(f"{error.filename or 'a file'}: {error.strerror or error}") from error


# Unpacks a tar archive from a container. Its content is not trusted: nothing is written outside the destination.
#
# Links are left out, as kubectl does: a later entry could write through a link to any place. Unpacking runs in a thread.


#: Maximum bytes of headers before one entry: names and attributes may be long, but not unlimited.
_HEADERS = 4 << 20


class Source:
    """A file object from which ``tarfile`` reads an archive in a thread. ``more`` runs in the event loop and returns the next bytes."""

    def __init__(self, more: Callable[[], Awaitable[bytes]], description: str) -> None:
        self.where = description
        self.ended = False
        self.in_headers = 0
        """Number of header bytes that may still arrive; a negative number means no limit."""
        self._more = more
        self._loop = asyncio.get_running_loop()
        self._waiting: concurrent.futures.Future[bytes] | None = None
        self._stopped = False

    def read(self, size: int) -> bytes:
        """Return the next bytes; called in the thread. Raises the errors of ``more``."""
        if self.ended:
            return b""
        if self._stopped:
            raise CopyError(f"{self.where}: the copy was stopped")
        self._waiting = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
        try:
            data = self._waiting.result()
        except concurrent.futures.CancelledError as error:
            raise CopyError(f"{self.where}: the copy was stopped") from error
        self.ended = not data
        if self.in_headers >= 0:
            self.in_headers -= len(data)
            if self.in_headers < 0:
                raise CopyError(f"{self.where}: the archive has headers of more than {_HEADERS} bytes")
        return data

    def stop(self) -> None:
        """Make all further reads raise; called in the event loop."""
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def _next(self) -> bytes:
        if self._stopped:
            raise CopyError(f"{self.where}: the copy was stopped")
        return await self._more()


class Unpacking:
    """Unpacks the archive of ``source`` (a path in the container) to ``destination``."""

    def __init__(self, feed: Source, source: str, destination: Path) -> None:
        self.files = 0
        self.bytes = 0
        self.skipped: list[str] = []
        self.progress: tuple[str, int, int, int] | None = None
        self._feed = feed
        self._prefix = _normal(source)
        self._destination = destination

    def run(self) -> None:
        """Unpack the archive; called in a thread.

        Raises:
            CopyError: The archive is damaged or leads outside the destination, or a file cannot be written.
        """
        try:
            self._feed.in_headers = _HEADERS
            with tarfile.open(fileobj=self._feed, mode="r|", bufsize=64 * 1024) as archive:  # type: ignore[call-overload]  # it only reads
                while (member := archive.next()) is not None:
                    self._feed.in_headers = -1
                    self._take(archive, member)
                    archive.members = []  # otherwise ``tarfile`` stores every member in memory
                    self._feed.in_headers = _HEADERS
        except tarfile.TarError as error:
            raise CopyError(f"{self._feed.where}: the archive cannot be read: {error}") from error
        except KubeloopError:
            raise  # the connection broke; that is no error of a file
        except OSError as error:
            raise CopyError(f"{error.filename or self._destination}: {error.strerror or error}") from error

    def _take(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        relative = self._relative(member.name)
        if member.isdir():
            self._folder(relative)
        elif member.isreg() and not member.issparse():
            with archive.extractfile(member) or _nothing(member) as content:
                self._file(relative, member.mode, member.size, content)
        elif member.islnk():
            self._hard_link(relative, member)
        elif member.issym():
            self._skip(f"{member.name}: a symbolic link to {member.linkname}")
        else:
            self._skip(f"{member.name}: neither file, folder nor link")

    def _relative(self, name: str) -> str:
        """Return a member's path relative to the requested path, empty for that path itself. Raises CopyError if it lies outside."""
        normal = _normal(name)
        if (
            ".." in name.split("/")
            or "\0" in name
            or not (normal == self._prefix or not self._prefix or normal.startswith(f"{self._prefix}/"))
        ):
            raise CopyError(
                f'{self._feed.where}: the archive holds "{name}", which is outside the requested path; nothing more is unpacked'
            )
        return normal[len(self._prefix) :].strip("/")

    def _folder(self, relative: str) -> Path:
        """Return a folder, created with its parents. It follows no link below the destination."""
        path = self._destination
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
        for part in relative.split("/") if relative else ():
            path /= part
            try:
                path.mkdir(mode=0o755)
            except FileExistsError:
                if not stat.S_ISDIR(path.lstat().st_mode):
                    raise CopyError(f"{path} is there and no folder (a link is not followed); remove it, or copy elsewhere") from None
        return path

    def _path(self, relative: str) -> Path:
        if relative:
            folder, _, name = relative.rpartition("/")
            return self._folder(folder) / name
        self._destination.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if self._destination.is_dir():
            name = posixpath.basename(self._prefix)
            raise CopyError(f"{self._destination} is a folder; name the file that is to be written, for example {self._destination / name}")
        return self._destination

    def _file(self, relative: str, mode: int, size: int, content: IO[bytes]) -> None:
        path = self._path(relative)
        name = relative or path.name
        done = 0
        with self._create(path, mode, follow=not relative) as file:
            while piece := content.read(_PIECE):
                file.write(piece)
                done += len(piece)
                self.bytes += len(piece)
                self.progress = (name, done, size, self.bytes)
        if done != size:
            raise CopyError(f"{self._feed.where}: the archive ends within {name}: {done} of {size} bytes")
        self.progress = (name, done, size, self.bytes)
        self.files += 1

    @staticmethod
    def _create(path: Path, mode: int, *, follow: bool) -> IO[bytes]:
        # Only a path that the caller named may be a link; set-user-ID and similar bits are not copied.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | (0 if follow else getattr(os, "O_NOFOLLOW", 0))  # missing outside POSIX
        return os.fdopen(os.open(path, flags, (mode & 0o777) | 0o200), "wb")

    def _hard_link(self, relative: str, member: tarfile.TarInfo) -> None:
        """Copy the content of an earlier file, of which this member is a second name."""
        first = self._destination / self._relative(member.linkname)
        if not relative or not first.resolve().is_relative_to(self._destination.resolve()) or not stat.S_ISREG(_mode(first)):
            self._skip(f"{member.name}: a link to {member.linkname}, which was not copied")
            return
        path = self._path(relative)
        with first.open("rb") as content, self._create(path, _mode(first), follow=False) as file:
            shutil.copyfileobj(content, file, _PIECE)
        self.files += 1

    def _skip(self, description: str) -> None:
        if len(self.skipped) < _NAMED:
            self.skipped.append(description)


def _normal(path: str) -> str:
    """Return a path as tar writes it: without leading parts that lead to the root or above."""
    normal = posixpath.normpath(path).lstrip("/")
    while normal == ".." or normal.startswith("../"):
        normal = normal[3:]
    return "" if normal == "." else normal


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _nothing(member: tarfile.TarInfo) -> IO[bytes]:
    raise CopyError(f'the archive\'s entry "{member.name}" has no content')
