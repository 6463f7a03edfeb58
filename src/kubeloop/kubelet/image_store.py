"""Images of OCI layouts, each unpacked once below the kubelet's folder, and the image map entries that result from them."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import tempfile
import threading
from pathlib import Path

from kubeloop.kubelet.images import ImageEntry
from kubeloop.kubelet.oci_layout import ImageLayout, LayoutError, LayoutImage
from kubeloop.kubelet.oci_unpack import LayerUnpacker, UnpackOptions
from kubeloop.tasks import finish, result_of, wait_all

#: Maximum bytes to read from /etc/passwd and /etc/group of an image.
_MAX_ACCOUNTS = 1 << 20
_PARTIAL = "partial-"
#: The largest user or group id.
_MAX_ID = 2**32 - 2


class ImageStore:
    """Unpacks images into the subfolder ``images`` of the kubelet's folder. An unpacked image is reused and never changed.

    Args:
        folder: The kubelet's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "images"
        self._locks: dict[str, asyncio.Lock] = {}

    def remove_partial(self) -> None:
        """Delete images that a killed kubelet did not unpack completely."""
        for path in self._folder.glob(f"{_PARTIAL}*"):
            shutil.rmtree(path, ignore_errors=True)

    def inspect(self, entry: ImageEntry, image: str) -> LayoutImage:
        """Return the image for this machine in the OCI layout of an image map entry.

        Args:
            entry: The entry of the image map, which names a layout.
            image: The image name in the container's specification; its tag selects an image if the entry has no ``reference``.

        Raises:
            LayoutError: The layout is broken, or has no such image.
        """
        assert entry.layout is not None, "the entry names a layout"
        tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2] or "latest"
        with ImageLayout(entry.layout) as layout:
            return layout.image(entry.reference or tag)

    def root(self, entry: ImageEntry, image: LayoutImage) -> Path:
        """Return the folder of an unpacked image, which may not exist yet.

        Args:
            entry: The entry of the image map.
            image: The image.
        """
        return self._folder / (image.digest.replace(":", "-") + ("-stripped" if entry.strip_setuid else ""))

    def is_unpacked(self, entry: ImageEntry, image: LayoutImage) -> bool:
        """Return whether an image is unpacked.

        Args:
            entry: The entry of the image map.
            image: The image.
        """
        return self.root(entry, image).is_dir()

    async def unpack(self, entry: ImageEntry, image: LayoutImage) -> None:
        """Unpack an image, unless it is unpacked already.

        Args:
            entry: The entry of the image map.
            image: The image.

        Raises:
            LayoutError: A layer is refused, or cannot be written.
        """
        async with self._locks.setdefault(image.digest, asyncio.Lock()):
            if self.is_unpacked(entry, image):
                return
            cancelled = threading.Event()
            unpacking = asyncio.ensure_future(asyncio.to_thread(self._unpack, entry, image, cancelled))
            try:
                await result_of(unpacking)
            except asyncio.CancelledError:
                cancelled.set()
                await finish(wait_all(unpacking))
                unpacking.exception()  # read, so that asyncio does not report it
                raise

    def _unpack(self, entry: ImageEntry, image: LayoutImage, cancelled: threading.Event) -> None:
        def check() -> None:
            if cancelled.is_set():
                raise LayoutError("cancelled")

        try:
            self._folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=self._folder))
        except OSError as error:
            raise LayoutError(f"{self._folder}: {str(error.strerror).lower()}") from None
        try:
            partial.chmod(0o755)
            unpacker = LayerUnpacker(partial, UnpackOptions(entry.strip_setuid, check=check))
            with ImageLayout(image.path) as layout:
                for descriptor in image.manifest.layers:
                    with layout.layer(descriptor) as stream:
                        unpacker.apply(stream)
            unpacker.finish()
            partial.rename(self.root(entry, image))
        except OSError as error:
            raise LayoutError(f"{partial}: {str(error.strerror or error).lower()}") from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def resolve(self, entry: ImageEntry, image: LayoutImage) -> ImageEntry:
        """Return an image map entry completed from the image's configuration; the entry's own settings take precedence.

        Args:
            entry: The entry of the image map.
            image: The entry's image, which is unpacked.

        Raises:
            LayoutError: The image's user or group does not exist in the image, or its environment is malformed.
        """
        root, settings = self.root(entry, image), image.settings
        own_command = bool(entry.command)
        uid, gid, home = _find_user(root, settings.user or "")
        environment = dict(pair.partition("=")[::2] for pair in settings.env or ())
        if "" in environment or any("\0" in pair for pair in settings.env or ()):
            raise LayoutError("the image's environment is malformed")
        return dataclasses.replace(
            entry,
            command=entry.command or tuple(settings.entrypoint or ()),
            args=entry.args or (() if own_command else tuple(settings.cmd or ())),
            environment={"HOME": home, **environment, **entry.environment},
            working_directory=entry.working_directory or settings.working_dir or "/",
            user=entry.user if entry.user is not None else uid,
            group=gid if entry.user is None else None,
            root=root,
        )


def _find_user(root: Path, text: str) -> tuple[int | None, int | None, str]:
    """Return uid, gid and home folder for ``User`` of an image's configuration; None stands for the kubelet's uid or gid.

    The text is the name or id of a user, optionally with a colon and the name or id of a group.
    """
    name, _, group = text.partition(":")
    accounts = _accounts(root, "passwd")
    account = next(
        (fields for fields in accounts if len(fields) > 5 and (fields[2] if name.isdigit() else fields[0]) == (name or "root")), None
    )
    if name and account is None and not name.isdigit():
        raise LayoutError(f"the image's user {name} is not in its /etc/passwd")
    try:
        uid = None if not name else int(name if account is None else account[2])
        gid = None if not name else int(account[3]) if account is not None else 0
        if group:
            groups = (
                [group] if group.isdigit() else [fields[2] for fields in _accounts(root, "group") if len(fields) > 2 and fields[0] == group]
            )
            if not groups:
                raise LayoutError(f"the image's group {group} is not in its /etc/group")
            gid = int(groups[0])
        if max(uid or 0, gid or 0) > _MAX_ID:
            raise ValueError("beyond the range of users")
    except ValueError:
        raise LayoutError(f"the image's user {text} has no valid number") from None
    return uid, gid, account[5] if account is not None else "/"


def _accounts(root: Path, name: str) -> list[list[str]]:
    try:
        path = LayerUnpacker(root, UnpackOptions()).folder(["etc"]) / name
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            text = file.read(_MAX_ACCOUNTS).decode("utf-8", "replace")
    except (OSError, LayoutError):
        return []
    return [line.split(":") for line in text.splitlines()]
