"""A tar archive from a container to files of this machine. What is in it is not trusted: nothing is written outside the destination.

Links are left out, as by kubectl: what one leads to could be written through by the next entry. Runs in a thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import posixpath
import shutil
import stat
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO

from kubeloop.client.streams.errors import CopyError
from kubeloop.meta import KubeloopError

_PIECE = 256 * 1024
#: Bytes of headers before one entry: names and attributes may be long, but not without end.
_HEADERS = 4 << 20
#: Names of what was left out that are kept.
_NAMED = 1000


class Source:
    """The archive as ``tarfile`` reads it, in a thread; the bytes come from ``more``, in the loop."""

    def __init__(self, more: Callable[[], Awaitable[bytes]], where: str) -> None:
        self.where = where
        self.ended = False
        self.in_headers = 0
        """Bytes of headers that may still come; below 0 any number of bytes may."""
        self._more = more
        self._loop = asyncio.get_running_loop()
        self._waiting: concurrent.futures.Future[bytes] | None = None
        self._stopped = False

    def read(self, size: int) -> bytes:
        """Called in the thread. Raises what ``more`` raises."""
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
        """Called in the loop: reading raises from now on."""
        self._stopped = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def _next(self) -> bytes:
        if self._stopped:
            raise CopyError(f"{self.where}: the copy was stopped")
        return await self._more()


class Unpacking:
    """``run`` writes what is at ``source`` in the container to ``destination``."""

    def __init__(self, feed: Source, source: str, destination: Path) -> None:
        self.files = 0
        self.bytes = 0
        self.skipped: list[str] = []
        self.told: tuple[str, int, int, int] | None = None
        self._feed = feed
        self._prefix = _normal(source)
        self._destination = destination

    def run(self) -> None:
        """Called in a thread.

        Raises:
            CopyError: the archive is broken or not to be trusted, or a file cannot be written.
        """
        try:
            self._feed.in_headers = _HEADERS
            with tarfile.open(fileobj=self._feed, mode="r|", bufsize=64 * 1024) as archive:  # type: ignore[call-overload]  # it only reads
                while (member := archive.next()) is not None:
                    self._feed.in_headers = -1
                    self._take(archive, member)
                    archive.members = []  # else it remembers every one
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
        """The name under what was asked for; empty for that itself. Raises CopyError: it leads elsewhere."""
        normal = _normal(name)
        if (
            ".." in name.split("/")
            or "\0" in name
            or not (normal == self._prefix or not self._prefix or normal.startswith(f"{self._prefix}/"))
        ):
            raise CopyError(
                f'{self._feed.where}: the archive holds "{name}", which is not under what was asked for; nothing more is unpacked'
            )
        return normal[len(self._prefix) :].strip("/")

    def _folder(self, relative: str) -> Path:
        """The folder, made with its parents. No link below the destination is followed."""
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
                self.told = (name, done, size, self.bytes)
        if done != size:
            raise CopyError(f"{self._feed.where}: the archive ends within {name}: {done} of {size} bytes")
        self.told = (name, done, size, self.bytes)
        self.files += 1

    @staticmethod
    def _create(path: Path, mode: int, *, follow: bool) -> IO[bytes]:
        # Only a path that the caller named may be a link; set-user-ID and the like are not taken over.
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | (0 if follow else getattr(os, "O_NOFOLLOW", 0))  # missing outside POSIX
        return os.fdopen(os.open(path, flags, (mode & 0o777) | 0o200), "wb")

    def _hard_link(self, relative: str, member: tarfile.TarInfo) -> None:
        """A second name of a file that came before: its content, again."""
        first = self._destination / self._relative(member.linkname)
        if not relative or not first.resolve().is_relative_to(self._destination.resolve()) or not stat.S_ISREG(_mode(first)):
            self._skip(f"{member.name}: a link to {member.linkname}, which was not copied")
            return
        path = self._path(relative)
        with first.open("rb") as content, self._create(path, _mode(first), follow=False) as file:
            shutil.copyfileobj(content, file, _PIECE)
        self.files += 1

    def _skip(self, what: str) -> None:
        if len(self.skipped) < _NAMED:
            self.skipped.append(what)


def _normal(path: str) -> str:
    """As tar names what is at ``path``: without what leads to the root or above."""
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
