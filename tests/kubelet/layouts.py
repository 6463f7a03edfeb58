"""Makes OCI image layouts for tests."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kubeloop.kubelet.oci_unpack import LayerUnpacker, UnpackOptions

MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
#: A file of a layer: a path and its content, or a header with any type.
Entry = tuple[str, bytes] | tarfile.TarInfo


def entry(name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    """Return the header of an entry without content."""
    result = tarfile.TarInfo(name)
    result.type, result.linkname, result.mode = kind, link, mode
    return result


def archive(entries: Sequence[Entry]) -> bytes:
    """Return a layer, uncompressed."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as tar:
        for one in entries:
            if isinstance(one, tarfile.TarInfo):
                tar.addfile(one)
            else:
                header = entry(one[0], mode=0o755)
                header.size = len(one[1])
                tar.addfile(header, io.BytesIO(one[1]))
    return output.getvalue()


class LayoutMaker:
    """A layout in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifests: list[dict[str, Any]] = []
        (folder / "blobs/sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')

    def blob(self, data: bytes, **fields: Any) -> dict[str, Any]:
        """Store a blob and return its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        (self.folder / "blobs/sha256" / digest).write_bytes(data)
        return {"mediaType": "application/octet-stream", "digest": f"sha256:{digest}", "size": len(data), **fields}

    def image(
        self,
        layers: Sequence[Sequence[Entry]],
        name: str = "latest",
        *,
        compress: Callable[[bytes], bytes] = gzip.compress,
        architecture: str = MACHINE,
        **config: Any,
    ) -> Path:
        """Add an image and return the layout's folder.

        Args:
            layers: The files of its layers.
            name: Its name in the layout.
            compress: Compresses layers.
            architecture: Of its configuration.
            config: Fields of its ``config``.
        """
        blobs = [self.blob(compress(archive(layer))) for layer in layers]
        configuration = self.blob(json.dumps({"os": "linux", "architecture": architecture, "config": config}).encode())
        manifest = self.blob(json.dumps({"schemaVersion": 2, "config": configuration, "layers": blobs}).encode())
        self.manifests.append({**manifest, "annotations": {"org.opencontainers.image.ref.name": name}})
        self.write_index()
        return self.folder

    def write_index(self) -> None:
        (self.folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": self.manifests}))


def programs(*names: str) -> list[Entry]:
    """Return this machine's programs with their libraries, at the same paths, and ``/bin`` as a link where it is one here."""
    files: dict[str, Path] = {}
    for name in names:
        path = shutil.which(name)
        assert path is not None, name
        files[f"bin/{name}"] = Path(path)
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        for word in listed.split():
            if word.startswith("/"):
                files[word.lstrip("/")] = Path(word)
    return [(name, path.read_bytes()) for name, path in files.items()]


def unpack(root: Path, *layers: list[Entry], **options: Any) -> Path:
    """Apply layers to a folder and return the folder."""
    root.mkdir(exist_ok=True)
    unpacker = LayerUnpacker(root, UnpackOptions(**options))
    for layer in layers:
        unpacker.apply(io.BytesIO(archive(layer)))
    unpacker.finish()
    return root


def files(root: Path) -> dict[str, str]:
    """Return the files of a folder with their contents, links with their targets, and folders."""
    result = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        result[name] = f"-> {path.readlink()}" if path.is_symlink() else "/" if path.is_dir() else path.read_text()
    return result
