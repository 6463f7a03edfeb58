"""Image maps, which say which command of this machine runs for each image, and the pulls that the kubelet simulates.

An image map is a YAML file, which is read again when it changes::

    images:
      nginx:
        command: [python3, -m, http.server, --bind, $(KUBELOOP_POD_IP)]
        args: ["8080"]
        environment: {PYTHONUNBUFFERED: "1"}
        files: {/usr/share/nginx/html/index.html: hello}
        workingDirectory: /usr/share/nginx/html

Source: Kubernetes pkg/kubelet/images (reasons and messages); github.com/distribution/reference (grammar of image names).
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kubeloop.codec.yaml import read_yaml
from kubeloop.kubelet.oci_layout import LayoutError, LayoutImage
from kubeloop.meta.errors import ConfigError, KubeloopError
from kubeloop.timing import Clock

#: Seconds of the first and the longest back-off after a failed pull.
_FIRST, _LONGEST = 10.0, 300.0


class ImageError(Exception):
    """An image is not available. ``reason`` is the reason of the container's waiting state."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class ImageEntry:
    """The configured program of an image: an entry of an ``ImageMap``.

    ``pull_error`` makes pulls fail with this message, ``pull_seconds`` is their duration, and ``present`` images need no pull. ``layout``
    is the path of an OCI image layout, ``reference`` the name of an image in this layout; ``strip_setuid`` removes set-user-ID and
    set-group-ID bits of files. After the image was unpacked, ``root`` is the folder of its files and ``group`` the group id of its user.
    """

    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    working_directory: str = ""
    user: int | None = None
    present: bool = True
    pull_seconds: float = 0.0
    pull_error: str = ""
    layout: Path | None = None
    reference: str = ""
    strip_setuid: bool = False
    root: Path | None = None
    group: int | None = None


_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_DOMAIN = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*(?::[0-9]+)?"
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_DOMAIN}/)?{_COMPONENT}(?:/{_COMPONENT})*)(?::(?P<tag>[\w][\w.-]{{0,127}}))?(?:@(?P<digest>[a-z0-9]+:[0-9a-f]{{32,}}))?",
    re.ASCII,
)


def check_name(image: str) -> None:
    """Check that the name of an image is well-formed.

    Raises:
        ImageError: The name is malformed; the reason is InvalidImageName.
    """
    if not _REFERENCE.fullmatch(image):
        lowered = _REFERENCE.fullmatch(image.lower())
        fault = f"repository name ({image.partition(':')[0]}) must be lowercase" if lowered and image != image.lower() else ""
        text = f"invalid reference format: {fault}" if fault else "invalid reference format"
        raise ImageError("InvalidImageName", f'Failed to apply default image tag "{image}": couldn\'t parse image name "{image}": {text}')


def repository(image: str) -> str:
    """Return an image's name without tag and digest."""
    match = _REFERENCE.fullmatch(image)
    return match["name"] if match else image


class ImageMap:
    """The entries of an image map file, which is read again when it changes.

    An entry's name is an image with a tag, an image without a tag (which matches every tag), or ``*`` (which matches every image without
    another entry). Without a file there are no entries, and every pull fails with a message that says how to write them.

    Raises:
        ConfigError: The file cannot be read, or is no image map. If a later version is broken, the previous entries stay in use, and
            ``fault`` has the error.

    Example:
        >>> _ = Path("images.yaml").write_text("images: {web: {command: [python3, -m, http.server]}}")
        >>> ImageMap(Path("images.yaml")).find("web:1.0").command
        ('python3', '-m', 'http.server')
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._entries: dict[str, ImageEntry] = {}
        self._mark: tuple[int, int] | None = None
        #: Why the present version of the file cannot be read; empty if it can.
        self.fault = ""
        if path is not None:
            self._entries = self._read(path)

    def find(self, image: str) -> ImageEntry | None:
        """Return the entry that matches an image best, or None if no entry matches."""
        self._refresh()
        for name in (image, repository(image), "*"):
            if name in self._entries:
                return self._entries[name]
        return None

    def _refresh(self) -> None:
        if self.path is None:
            return
        try:
            if self._mark != _mark(self.path):
                self._entries = self._read(self.path)
                self.fault = ""
        except (ConfigError, OSError) as error:
            self.fault = str(error)

    def _read(self, path: Path) -> dict[str, ImageEntry]:
        try:
            self._mark = _mark(path)
            text = path.read_text()
        except OSError as error:
            raise ConfigError(
                f"--image-map {path}: {error.strerror or error}; write a file with images: NAME: {{command: [...]}}"
            ) from None
        try:
            documents = read_yaml(text, name=str(path))
        except KubeloopError as error:
            raise ConfigError(f"--image-map {error}") from None
        if len(documents) != 1 or set(documents[0]) != {"images"} or not isinstance(documents[0]["images"], dict):
            raise ConfigError(f"--image-map {path}: it must have the form images: {{NAME: {{command: [...]}}}}")
        entries = documents[0]["images"].items()
        return {str(name): _entry(entry, f"--image-map {path}: {name}", path.parent) for name, entry in entries}


def _mark(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_ino


def _entry(tree: Any, subject: str, folder: Path) -> ImageEntry:
    if tree is None:
        return ImageEntry()
    if not isinstance(tree, dict):
        raise ConfigError(f"{subject}: must be a mapping")
    unknown = sorted(set(tree) - set(_FIELDS))
    if unknown:
        raise ConfigError(f"{subject}: unknown field {unknown[0]}; known are {', '.join(_FIELDS)}")
    for name, value in tree.items():
        valid, form = _FIELDS[name]
        if not valid(value):
            raise ConfigError(f"{subject}: {name} must be {form}")
    pull = tree.get("pull") or {}
    layout = tree.get("layout") or {}
    if isinstance(layout, str):
        layout = {"path": layout}
    return ImageEntry(
        command=tuple(map(str, tree.get("command") or ())),
        args=tuple(map(str, tree.get("args") or ())),
        environment={str(name): str(value) for name, value in (tree.get("environment") or {}).items()},
        files={str(name): str(value) for name, value in (tree.get("files") or {}).items()},
        working_directory=tree.get("workingDirectory") or "",
        user=tree.get("user"),
        present=tree.get("present", not pull),
        pull_seconds=float(pull.get("seconds") or 0.0),
        pull_error=str(pull.get("error") or ""),
        layout=folder / layout["path"] if layout else None,
        reference=layout.get("reference") or "",
        strip_setuid=layout.get("setuid") == "strip",
    )


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in value)


def _is_pull(value: Any) -> bool:
    return isinstance(value, dict) and set(value) <= {"seconds", "error"} and isinstance(value.get("seconds", 0), int | float)


def _is_layout(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value)
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        return False
    known = set(value) <= {"path", "reference", "setuid"} and value.get("setuid", "refuse") in ("refuse", "strip")
    return known and bool(value.get("path"))


_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "command": (_is_words, "a list of words"),
    "args": (_is_words, "a list of words"),
    "environment": (lambda value: isinstance(value, dict), "a mapping of names to values"),
    "files": (
        lambda value: isinstance(value, dict) and all(str(one).startswith("/") for one in value),
        "a mapping of absolute paths to texts",
    ),
    "workingDirectory": (lambda value: isinstance(value, str) and value.startswith("/"), "an absolute path"),
    "user": (lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0, "a user's number"),
    "present": (lambda value: isinstance(value, bool), "true or false"),
    "pull": (_is_pull, "{seconds: NUMBER, error: TEXT}"),
    "layout": (_is_layout, "the path of an OCI image layout, or {path: PATH, reference: NAME, setuid: refuse|strip}"),
}


def image_id(image: str) -> str:
    """Return the ``imageID`` of an image in container statuses: a digest of its name, since process pods have no image content."""
    name = image if ":" in image.rpartition("/")[2] or "@" in image else f"{image}:latest"
    return f"process://{repository(image)}@sha256:{hashlib.sha256(name.encode()).hexdigest()}"


#: Records an Event of a pull: whether it is a warning, its reason, and its message.
PullReporter = Callable[[bool, str, str], object]


class ImageUnpacker(Protocol):
    """Unpacks images of OCI layouts. ``ImageStore`` implements it."""

    def inspect(self, entry: ImageEntry, image: str) -> LayoutImage:
        """Return the image in the layout of an image map entry. Raises LayoutError."""

    def is_unpacked(self, entry: ImageEntry, image: LayoutImage) -> bool:
        """Return whether an image is unpacked."""

    async def unpack(self, entry: ImageEntry, image: LayoutImage) -> None:
        """Unpack an image. Raises LayoutError."""

    def resolve(self, entry: ImageEntry, image: LayoutImage) -> ImageEntry:
        """Return an image map entry completed from the image's configuration. Raises LayoutError."""


class ImagePuller:
    """Makes images available according to a container's pull policy, with the Events, reasons and back-off of the kubelet."""

    def __init__(self, images: ImageMap, clock: Clock, store: ImageUnpacker | None = None) -> None:
        self._images = images
        self._store = store
        self._refused: dict[tuple[str, str], tuple[str, str]] = {}
        self._clock = clock
        self._pulled: set[str] = set()
        self._failures: dict[tuple[str, str], tuple[float, float]] = {}

    async def ensure(self, image: str, policy: str, pod_uid: str, report: PullReporter) -> ImageEntry:
        """Return the image map entry of an image, after a pull if the policy requires one.

        Args:
            image: The image name in the container's specification.
            policy: ``Always``, ``IfNotPresent`` or ``Never``.
            pod_uid: The uid of the pod, for which back-off is counted.
            report: Records Events.

        Returns:
            The configured program of the image.

        Raises:
            ImageError: The name is malformed, the image is missing, or its pull failed or backs off.
        """
        try:
            check_name(image)
        except ImageError as error:
            report(True, "InspectFailed", error.message)
            raise
        entry = self._images.find(image)
        content = None
        if entry is not None and entry.layout is not None:
            content = await self._inspect(image, entry, report)
        present = entry is not None and (entry.present or image in self._pulled) and not entry.pull_error
        if present and entry is not None and content is not None and self._store is not None:
            present = self._store.is_unpacked(entry, content)
        if policy == "Never" and not present:
            message = f'Container image "{image}" is not present with pull policy of Never'
            report(True, "ErrImageNeverPull", message)
            raise ImageError("ErrImageNeverPull", message)
        if entry is not None and present and policy != "Always":
            report(False, "Pulled", f'Container image "{image}" already present on machine and can be accessed by the pod')
            return self._resolved(image, entry, content, report)
        return await self._pull(image, entry, content, (pod_uid, image), report)

    async def _inspect(self, image: str, entry: ImageEntry, report: PullReporter) -> LayoutImage:
        try:
            if self._store is None:
                raise LayoutError("this kubelet unpacks no image layouts")
            return await asyncio.to_thread(self._store.inspect, entry, image)
        except LayoutError as error:
            raise _uninspected(image, error, report) from None

    def _resolved(self, image: str, entry: ImageEntry, content: LayoutImage | None, report: PullReporter) -> ImageEntry:
        if content is None or self._store is None:
            return entry
        try:
            return self._store.resolve(entry, content)
        except LayoutError as error:
            raise _uninspected(image, error, report) from None

    async def _pull(
        self, image: str, entry: ImageEntry | None, content: LayoutImage | None, key: tuple[str, str], report: PullReporter
    ) -> ImageEntry:
        until, seconds = self._failures.get(key, (0.0, 0.0))
        error = self._error(image, entry)
        refused = self._refused.get(key)
        if not error and content is not None and refused is not None and refused[0] == content.digest:
            error = refused[1]
        if error and self._clock.now() < until:
            report(False, "BackOff", f'Back-off pulling image "{image}"')
            raise ImageError("ImagePullBackOff", f'Back-off pulling image "{image}": ErrImagePull: {error}')
        report(False, "Pulling", f'Pulling image "{image}"')
        started = self._clock.now()
        if entry is not None and entry.pull_seconds:
            await self._clock.sleep(entry.pull_seconds)
        if entry is not None and content is not None and self._store is not None and not entry.pull_error:
            try:
                await self._store.unpack(entry, content)
                error = ""
            except LayoutError as failure:
                error = f'failed to pull and unpack image "{image}": {failure}'
                self._refused[key] = (content.digest, error)
        if entry is None or error:
            report(True, "Failed", f'Failed to pull image "{image}": {error}')
            wait = min(seconds * 2, _LONGEST) if seconds else _FIRST
            self._failures[key] = (self._clock.now() + wait, wait)
            raise ImageError("ErrImagePull", error)
        self._failures.pop(key, None)
        self._pulled.add(image)
        took = f"{(self._clock.now() - started) * 1000:.0f}ms"
        report(False, "Pulled", f'Successfully pulled image "{image}" in {took} ({took} including waiting). Image size: 0 bytes.')
        return self._resolved(image, entry, content, report)

    def _error(self, image: str, entry: ImageEntry | None) -> str:
        if entry is not None:
            return entry.pull_error
        if self._images.fault:
            return f'failed to find image "{image}": {self._images.fault}'
        if self._images.path is None:
            return f'failed to find image "{image}": the kubelet has no image map; start it with --image-map FILE'
        return f'failed to find image "{image}": {self._images.path} has no entry for it; add {repository(image)}: {{command: [...]}}'

    def forget(self, pod_uid: str) -> None:
        """Forget the back-off of a pod that no longer exists."""
        for key in [key for key in self._failures if key[0] == pod_uid]:
            del self._failures[key]
            self._refused.pop(key, None)


def _uninspected(image: str, error: LayoutError, report: PullReporter) -> ImageError:
    message = f'Failed to inspect image "{image}": {error}'
    report(True, "InspectFailed", message)
    return ImageError("ImageInspectError", message)
