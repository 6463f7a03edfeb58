"""Unpacks layers of images into a folder. Layers are untrusted, and the kubelet may be root: nothing is written outside the folder.

It refuses paths and links that lead out of the root, device files, files with set-user-ID or set-group-ID bits, and images above the
limits. Source: github.com/opencontainers/image-spec 1.1, layer.md (whiteouts, opaque folders); containerd archive/tar.go.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kubeloop.kubelet.oci_layout import READ_ERRORS, LayoutError, LimitedTarInfo

#: Maximum bytes of all files, and maximum number of entries, of an image.
MAX_BYTES, MAX_ENTRIES = 16 << 30, 1_000_000
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_CHUNK = 1 << 20
_MAX_LINKS = 40


@dataclass(frozen=True)
class UnpackOptions:
    """Options and limits of a ``LayerUnpacker``.

    ``strip_setuid`` removes set-user-ID and set-group-ID bits instead of refusing files with them. ``max_bytes`` and ``max_entries`` limit
    the whole image. ``check`` is called often, and may raise an exception to stop unpacking.
    """

    strip_setuid: bool = False
    max_bytes: int = MAX_BYTES
    max_entries: int = MAX_ENTRIES
    check: Callable[[], None] = lambda: None


class LayerUnpacker:
    """Unpacks the layers of an image, the lowest first, into a folder.

    Guarantees:
        No file outside the folder is created, changed or deleted, whatever the layers contain, as long as no other process changes the
        folder meanwhile.

    Args:
        root: The folder; it exists and is empty.
        options: Options and limits.
    """

    def __init__(self, root: Path, options: UnpackOptions) -> None:
        self._root = root
        self._options = options
        self._bytes = self._entries = 0
        #: Folders with the entries whose mode and owner they get at the end, since later layers may write into read-only folders.
        self._folders: dict[Path, tarfile.TarInfo] = {}

    def apply(self, layer: IO[bytes]) -> None:
        """Unpack the next layer.

        Args:
            layer: An uncompressed tar archive.

        Raises:
            LayoutError: An entry is refused or cannot be written.
        """
        written: set[Path] = set()
        name = ""
        try:
            with tarfile.open(fileobj=layer, mode="r|", tarinfo=LimitedTarInfo) as archive:
                for entry in archive:
                    name = entry.name
                    self._options.check()
                    self._count(entry)
                    self._apply(archive, entry, written)
        except LayoutError as error:
            raise LayoutError(f'layer entry "{name}": {error}' if name else str(error)) from None
        except READ_ERRORS as error:
            reason = str(getattr(error, "strerror", None) or error).lower()
            raise LayoutError(f'layer entry "{name}": {reason}') from None

    def finish(self) -> None:
        """Set the modes and owners of folders, after the last layer."""
        for path, entry in sorted(self._folders.items(), reverse=True):
            self._set_owner(path, entry)
            mode = stat.S_IMODE(entry.mode) & 0o3777
            path.chmod(mode if os.geteuid() == 0 else mode & 0o1777 | 0o700)

    def _count(self, entry: tarfile.TarInfo) -> None:
        self._entries += 1
        if self._entries > self._options.max_entries:
            raise LayoutError(f"the image has more than {self._options.max_entries} files")
        if entry.isreg():
            self._bytes += entry.size
            if self._bytes > self._options.max_bytes:
                raise LayoutError(f"the image has more than {self._options.max_bytes} bytes")

    # ------------------------------------------------------------------------------------------------------------------- entries

    def _apply(self, archive: tarfile.TarFile, entry: tarfile.TarInfo, written: set[Path]) -> None:
        parts = _parts(entry.name)
        if not parts:
            return
        parent, base = self.folder(parts[:-1], create=True), parts[-1]
        if base.startswith(_WHITEOUT):
            self._white_out(parent, base, written)
            return
        target = parent / base
        present = _mode(target)
        if present is not None and not (stat.S_ISDIR(present) and entry.isdir()):
            self._remove(target)
        if entry.isdir():
            if _mode(target) is None:
                target.mkdir(mode=0o755)
            self._folders[target] = entry
        elif entry.issym():
            self._check_link(parts[:-1], entry.linkname)
            target.symlink_to(entry.linkname)
            self._set_owner(target, entry)
        elif entry.islnk():
            self._link(target, entry.linkname)
        elif entry.isreg() and not entry.issparse():
            self._write(archive, entry, target)
        else:
            kind = "a device file" if entry.ischr() or entry.isblk() else "a named pipe" if entry.isfifo() else "of an unknown type"
            raise LayoutError(f"it is {kind}; images of process pods have folders, files and links only")
        written.update((target, *target.parents))

    def _white_out(self, parent: Path, base: str, written: set[Path]) -> None:
        """Remove a file of lower layers, or all such files of a folder for an opaque whiteout; files of the present layer stay."""
        names = [path.name for path in parent.iterdir()] if base == _OPAQUE else [base.removeprefix(_WHITEOUT)]
        for name in names:
            if name in ("", ".", ".."):
                raise LayoutError("it removes no file")
            path = parent / name
            if path not in written and _mode(path) is not None:
                self._remove(path)
            elif base == _OPAQUE and stat.S_ISDIR(_mode(path) or 0):
                self._white_out(path, _OPAQUE, written)

    def _write(self, archive: tarfile.TarFile, entry: tarfile.TarInfo, target: Path) -> None:
        mode = stat.S_IMODE(entry.mode)
        if mode & (stat.S_ISUID | stat.S_ISGID) and not self._options.strip_setuid:
            raise LayoutError("it has a set-user-ID or set-group-ID bit; setuid: strip of the image map's entry removes these")
        source = archive.extractfile(entry)
        assert source is not None, "it is a file"
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            while chunk := source.read(_CHUNK):
                self._options.check()
                file.write(chunk)
            self._set_owner(target, entry)
            os.fchmod(file.fileno(), mode & 0o777)

    def _link(self, target: Path, name: str) -> None:
        parts = _parts(name)
        source = self.folder(parts[:-1]) / parts[-1] if parts else self._root
        if not stat.S_ISREG(_mode(source) or 0):
            raise LayoutError(f'it is a link to "{name}", which is not a file of the image')
        os.link(source, target, follow_symlinks=False)

    def _check_link(self, parent: list[str], target: str) -> None:
        depth = 0 if target.startswith("/") else len(parent)
        for part in target.split("/"):
            depth += -1 if part == ".." else 0 if part in ("", ".") else 1
            if depth < 0:
                raise LayoutError(f'it is a link to "{target}", which leads out of the image')

    def _set_owner(self, path: Path, entry: tarfile.TarInfo) -> None:
        if os.geteuid() == 0:
            os.chown(path, entry.uid, entry.gid, follow_symlinks=False)

    def _remove(self, path: Path) -> None:
        if stat.S_ISDIR(_mode(path) or 0):
            shutil.rmtree(path)
        else:
            path.unlink()
        for folder in [folder for folder in self._folders if folder == path or path in folder.parents]:
            del self._folders[folder]

    # ---------------------------------------------------------------------------------------------------------------------- paths

    def folder(self, parts: list[str], *, create: bool = False) -> Path:
        """Return the folder on this machine of a path in the image, resolving symbolic links within the image's root.

        Args:
            parts: The components of the path.
            create: Create missing components.

        Raises:
            LayoutError: A component is missing, is no folder, or leads out of the root.
        """
        left, done, links = list(parts), list[str](), 0
        while left:
            part = left.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                if not done:
                    raise LayoutError("its path leads out of the image")
                done.pop()
                continue
            path = self._root.joinpath(*done, part)
            mode = _mode(path)
            if mode is not None and stat.S_ISLNK(mode):
                links += 1
                if links > _MAX_LINKS:
                    raise LayoutError("its path has too many symbolic links")
                link = str(path.readlink())
                done = [] if link.startswith("/") else done
                left = [*link.split("/"), *left]
                continue
            if mode is None and create:
                path.mkdir(mode=0o755)
            elif mode is None or not stat.S_ISDIR(mode):
                raise LayoutError(f'"{path.relative_to(self._root)}" is not a folder of the image')
            done.append(part)
        return self._root.joinpath(*done)


def _parts(name: str) -> list[str]:
    if name.startswith("/") or "\0" in name:
        raise LayoutError("its path is not relative to the image's root")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise LayoutError("its path leads out of the image")
    return parts


def _mode(path: Path) -> int | None:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return None
