"""Reads OCI image layouts, folders or tar archives: index, manifest, configuration and layers, each checked against its digest.

Contents are untrusted: sizes are limited, digests are the only names of blobs, and JSON with other than the specified types is refused.
Source: github.com/opencontainers/image-spec 1.1 (image-layout.md, image-index.md, manifest.md, config.md, descriptor.md).
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import platform
import re
import stat
import sys
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self, TypeVar, cast

import msgspec

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

T = TypeVar("T")
#: Maximum bytes of an index, manifest or configuration; maximum depth of nested indexes; maximum number of layers of an image.
_MAX_DOCUMENT, _MAX_DEPTH, _MAX_LAYERS = 4 << 20, 3, 500
_DIGEST = re.compile(r"(sha256):([0-9a-f]{64})|(sha512):([0-9a-f]{128})")
_NAMES = ("org.opencontainers.image.ref.name", "io.containerd.image.name")
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_CHUNK = 1 << 20
#: Maximum bytes of an archive entry's extended header.
MAX_HEADER = 1 << 20
_EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
#: Exceptions that reading archives and compressed data can raise.
READ_ERRORS = (OSError, EOFError, ValueError, tarfile.TarError, zlib.error, zstd.ZstdError)


class LayoutError(Exception):
    """An image layout cannot be used; the message says why."""


class LimitedTarInfo(tarfile.TarInfo):
    """An archive entry that refuses extended headers above MAX_HEADER bytes, because tarfile reads them into memory."""

    # tarfile's comment on this method says that subclasses may override it; each version of Python calls it before it reads on.
    def _proc_member(self, archive: tarfile.TarFile) -> Self:
        if self.type in _EXTENDED and self.size > MAX_HEADER:
            raise LayoutError(f"a header of {self.size} bytes; at most {MAX_HEADER} are read")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


class ImagePlatform(msgspec.Struct):
    """The operating system and architecture for which an image is built."""

    os: str = ""
    architecture: str = ""


class Descriptor(msgspec.Struct, rename="camel"):
    """A reference to a blob of an OCI layout: its digest, size in bytes and media type."""

    digest: str
    size: int
    media_type: str = ""
    platform: ImagePlatform | None = None
    annotations: dict[str, str] | None = None


class ImageIndex(msgspec.Struct):
    """An image index: descriptors of manifests and of further indexes."""

    manifests: list[Descriptor]


class ImageManifest(msgspec.Struct):
    """The manifest of an image: descriptors of its configuration and layers."""

    config: Descriptor
    layers: list[Descriptor]


class ImageSettings(msgspec.Struct, rename="pascal"):
    """Defaults for the containers of an image: the field ``config`` of its configuration."""

    user: str | None = None
    env: list[str] | None = None
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    working_dir: str | None = None


class ImageConfiguration(msgspec.Struct):
    """The configuration of an image."""

    architecture: str = ""
    os: str = ""
    config: ImageSettings | None = None


@dataclass(frozen=True)
class LayoutImage:
    """An image of an OCI layout. ``digest`` is the digest of its manifest, and identifies all of its content."""

    path: Path
    digest: str
    manifest: ImageManifest
    settings: ImageSettings


class ImageLayout:
    """An OCI image layout that is open for reading; a context manager.

    Args:
        path: A folder, or a tar archive.

    Raises:
        LayoutError: The path cannot be read, or is no layout.

    Example:
        >>> with ImageLayout(Path("hello")) as layout:
        ...     layout.image("1.0").settings.entrypoint
        ['/hello']
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._archive: tarfile.TarFile | None = None
        try:
            if not path.is_dir():
                with path.open("rb") as file:
                    compressed = file.read(2) == b"\x1f\x8b"
                self._archive = tarfile.open(path, "r:gz" if compressed else "r:", tarinfo=LimitedTarInfo)  # noqa: SIM115 - closed by __exit__
            marker = self._read("oci-layout", 1 << 10)
        except READ_ERRORS as error:
            self.close()
            raise LayoutError(
                f"{path}: {_reason(error)}; an OCI image layout is a folder or a tar archive with the file oci-layout"
            ) from None
        except LayoutError:
            self.close()
            raise
        if _decode(marker, dict[str, str], "oci-layout").get("imageLayoutVersion") != "1.0.0":
            self.close()
            raise LayoutError(f"{path}: oci-layout names no version 1.0.0 of the image layout")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()

    # -------------------------------------------------------------------------------------------------------------------- images

    def image(self, reference: str) -> LayoutImage:
        """Return the image for this machine.

        Args:
            reference: The image's name in the layout, usually a tag. If the layout does not have this name, its only image is returned.

        Raises:
            LayoutError: The layout has no such image or several, or a document is malformed.
        """
        try:
            data = self._read("index.json", _MAX_DOCUMENT)
        except READ_ERRORS as error:
            raise LayoutError(f"{self.path}: index.json: {_reason(error)}") from None
        descriptor = self._select(_decode(data, ImageIndex, "index.json"), reference, 0)
        manifest = _decode(self._document(descriptor), ImageManifest, descriptor.digest)
        if len(manifest.layers) > _MAX_LAYERS:
            raise LayoutError(f"{self.path}: the image has {len(manifest.layers)} layers, and may have {_MAX_LAYERS}")
        configuration = _decode(self._document(manifest.config), ImageConfiguration, manifest.config.digest)
        machine = _MACHINES.get(platform.machine(), platform.machine())
        if (configuration.os or "linux", configuration.architecture or machine) != ("linux", machine):
            made_for = f"{configuration.os}/{configuration.architecture}"
            raise LayoutError(f"{self.path}: the image is for {made_for}; this machine is linux/{machine}")
        return LayoutImage(self.path, descriptor.digest, manifest, configuration.config or ImageSettings())

    def _select(self, index: ImageIndex, reference: str, depth: int) -> Descriptor:
        """Return the descriptor of the manifest for this machine: the one with a name, or the only one of the index."""
        machine = _MACHINES.get(platform.machine(), platform.machine())
        named = [
            one
            for one in index.manifests
            if any((name := (one.annotations or {}).get(key, "")) == reference or name.endswith(f":{reference}") for key in _NAMES)
        ]
        candidates = (named if depth == 0 else []) or index.manifests
        fitting = [one for one in candidates if one.platform is None or (one.platform.os, one.platform.architecture) == ("linux", machine)]
        if len(fitting) != 1:
            names = sorted({name for one in index.manifests for key in _NAMES if (name := (one.annotations or {}).get(key, ""))})
            known = f"; it has {', '.join(names)}" if names else ""
            fault = "no image" if not fitting else f"{len(fitting)} images"
            raise LayoutError(f'{self.path}: {fault} "{reference}" for linux/{machine}{known}')
        [chosen] = fitting
        if chosen.media_type not in _INDEXES:
            return chosen
        if depth >= _MAX_DEPTH:
            raise LayoutError(f"{self.path}: indexes are nested more than {_MAX_DEPTH} deep")
        return self._select(_decode(self._document(chosen), ImageIndex, chosen.digest), reference, depth + 1)

    # --------------------------------------------------------------------------------------------------------------------- blobs

    def _document(self, descriptor: Descriptor) -> bytes:
        if not 0 <= descriptor.size <= _MAX_DOCUMENT:
            raise LayoutError(f"{self.path}: {descriptor.digest} has {descriptor.size} bytes, and may have {_MAX_DOCUMENT}")
        with self._blob(descriptor) as file:
            return file.read(_MAX_DOCUMENT)

    @contextlib.contextmanager
    def layer(self, descriptor: Descriptor) -> Iterator[IO[bytes]]:
        """Open a layer as an uncompressed tar archive, after checking its digest; gzip and zstd are decompressed.

        Raises:
            LayoutError: The layer cannot be read, or its content does not have the digest and size of its descriptor.
        """
        with self._blob(descriptor) as file:
            start = file.read(4)
            file.seek(0)
            if start[:2] == b"\x1f\x8b":
                with gzip.GzipFile(fileobj=file) as stream:
                    yield cast("IO[bytes]", stream)
            elif start == b"\x28\xb5\x2f\xfd":
                with zstd.ZstdFile(file) as stream:
                    yield cast("IO[bytes]", stream)
            else:
                yield file

    @contextlib.contextmanager
    def _blob(self, descriptor: Descriptor) -> Iterator[IO[bytes]]:
        match = _DIGEST.fullmatch(descriptor.digest)
        if match is None:
            raise LayoutError(f'{self.path}: "{descriptor.digest[:100]}" is not a digest of sha256 or sha512')
        algorithm, _, text = descriptor.digest.partition(":")
        try:
            with self._open(f"blobs/{algorithm}/{text}") as file:
                digest, size = hashlib.new(algorithm), 0
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
                    size += len(chunk)
                    if size > descriptor.size:
                        break
                if size != descriptor.size or digest.hexdigest() != text:
                    raise LayoutError(
                        f"{self.path}: the content of {descriptor.digest} does not have this digest and {descriptor.size} bytes"
                    )
                file.seek(0)
                yield file
        except READ_ERRORS as error:
            raise LayoutError(f"{self.path}: {descriptor.digest}: {_reason(error)}") from None

    def _read(self, name: str, limit: int) -> bytes:
        with self._open(name) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise LayoutError(f"{self.path}: {name} has more than {limit} bytes")
        return data

    def _open(self, name: str) -> IO[bytes]:
        if self._archive is None:
            # Without blocking: the file may be a pipe.
            file = os.fdopen(os.open(self.path / name, os.O_RDONLY | os.O_NONBLOCK), "rb")
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                file.close()
                raise LayoutError(f"{self.path}: {name} is not a file")
            return file
        for spelling in (name, f"./{name}"):
            with contextlib.suppress(KeyError):
                member = self._archive.getmember(spelling)
                source = self._archive.extractfile(member) if member.isreg() else None
                if source is None:
                    raise LayoutError(f"{self.path}: {name} is not a file")
                return source
        raise FileNotFoundError(2, f"no file {name}", name)


def _decode(data: bytes, kind: type[T], name: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LayoutError(f"{name} is malformed: {error}") from None


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).lower()
