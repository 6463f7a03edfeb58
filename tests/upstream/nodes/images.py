"""Stand-ins for the images of the conformance suite: OCI archives of this machine's programs, since no registry is reached.

They hold what the specs call: a shell, busybox' tools, curl, nc, dig and the suite's own agnhost. They are no replacement for the images.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_REGISTRY = "registry.k8s.io"
_E2E = f"{_REGISTRY}/e2e-test-images"
PAUSE = f"{_REGISTRY}/pause:3.10.2"
BUSYBOX = f"{_E2E}/busybox:1.37.0-1"
AGNHOST = f"{_E2E}/agnhost:2.63.0"
COREDNS = f"{_REGISTRY}/coredns/coredns:v1.12.4"
_FOLDERS = (
    "bin",
    "etc",
    "home",
    "proc",
    "root",
    "run",
    "sbin",
    "sys",
    "dev",
    "tmp",
    "uploads",
    "usr/bin",
    "usr/lib",
    "usr/local/bin",
    "var",
)
#: The annotation by which containerd names the images of an archive.
_NAME = "io.containerd.image.name"
_PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nuser-defined-in-image:x:1000:1000::/home:/bin/sh\n"
_GROUP = "root:x:0:\nnogroup:x:65534:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"
#: The first process of a pod's sandbox: waits, and reaps orphans.
_PAUSE_SOURCE = """
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int number) { exit(0); }
static void reap(int number) { while (waitpid(-1, 0, WNOHANG) > 0); }
int main() { signal(SIGINT, end); signal(SIGTERM, end); signal(SIGCHLD, reap); for (;;) pause(); }
"""


@dataclass(frozen=True)
class Image:
    """An image: names, files and configuration. ``files`` maps paths in the image to files; ``shell``: with a shell and tools."""

    names: Sequence[str]
    files: Mapping[str, Path] = field(default_factory=dict)
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    user: str = ""
    shell: bool = True
    #: Paths whose files run with their owner's rights.
    setuid: Sequence[str] = ()


def archives(folder: Path, programs: Path, debian: Path, kubernetes: Path, etcd: Path) -> list[Path]:
    """Return the archives, written now if they are not there.

    Args:
        folder: The folder for them; each version of this file and of the programs has its own in it.
        programs: Built programs, agnhost and coredns among them.
        debian: Files of Debian packages.
        kubernetes: The sources of Kubernetes, for the pages of two images.
        etcd: The program.
    """
    version = hashlib.sha256(Path(__file__).read_bytes() + programs.name.encode()).hexdigest()[:12]
    target = folder / f"nodes-images-{version}"
    target.mkdir(parents=True, exist_ok=True)
    pause = target / "pause"
    if not pause.exists():
        subprocess.run(["gcc", "-Os", "-static", "-x", "c", "-o", str(pause), "-"], input=_PAUSE_SOURCE, text=True, check=True)
    result = []
    for image in _images(programs, kubernetes / "test/images", pause, etcd):
        archive = target / f"{image.names[0].rpartition('/')[2].replace(':', '-')}.tar"
        if not archive.exists():
            unfinished = archive.with_suffix(".part")
            _write_archive(image, unfinished, debian)
            unfinished.rename(archive)
        result.append(archive)
    return result


def names(archive: Path) -> list[str]:
    """Return the names of the images in an archive, with their tags."""
    with tarfile.open(archive) as opened:
        index = opened.extractfile("index.json")
        assert index is not None
        return [manifest["annotations"][_NAME] for manifest in json.load(index)["manifests"]]


def _images(programs: Path, sources: Path, pause: Path, etcd: Path) -> Iterable[Image]:
    agnhost = {"/agnhost": programs / "agnhost", "/agnhost-2": programs / "agnhost"}
    agnhost |= {f"/{name}": sources / "agnhost/porter" / name for name in ("localhost.crt", "localhost.key")}
    yield Image(
        [PAUSE, f"{_REGISTRY}/pause:3.10.1", f"{_REGISTRY}/pause:3.10"], {"/pause": pause}, ["/pause"], user="65535:65535", shell=False
    )
    yield Image([AGNHOST, f"{_E2E}/agnhost:2.55"], agnhost, ["/agnhost"], ["pause"])
    yield Image([BUSYBOX, f"{_E2E}/glibc-dns-testing:2.0.0"], {}, (), ["sh"])
    # What listens on port 80 is all that the specs want of nginx and httpd.
    yield Image([f"{_E2E}/nginx:1.15-4", f"{_E2E}/nginx:1.27-0"], agnhost, ["/agnhost"], ["netexec", "--http-port=80"])
    for name in ("nautilus", "kitten"):
        pages = {f"/{file.name}": file for file in (sources / name / "html").iterdir()}
        yield Image([f"{_E2E}/{name}:1.8"], agnhost | pages, ["/agnhost"], ["test-webserver"])
    yield Image([f"{_E2E}/nonroot:1.5"], {}, (), ["sh"], user="1234")
    yield Image([f"{_E2E}/nonewprivs:1.4"], {"/usr/local/bin/nnp": programs / "nnp"}, (), ["nnp"], setuid=("/usr/local/bin/nnp",))
    # An aggregated API server of Kubernetes, and the store that it runs beside.
    yield Image([f"{_E2E}/sample-apiserver:1.29.2"], {"/sample-apiserver": programs / "sample-apiserver"}, ["/sample-apiserver"])
    yield Image([f"{_REGISTRY}/etcd:3.6.8-0"], {"/usr/local/bin/etcd": etcd}, ["/usr/local/bin/etcd"])
    yield Image([COREDNS], {"/coredns": programs / "coredns"}, ["/coredns"], shell=False)


def _write_archive(image: Image, target: Path, debian: Path) -> None:
    """Write an OCI archive with one layer."""
    layer = _layer(image, debian)
    variables = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    settings: dict[str, Any] = {"Env": variables, "WorkingDir": "/", "User": image.user}
    settings |= {"Entrypoint": list(image.entrypoint)} if image.entrypoint else {}
    settings |= {"Cmd": list(image.command)} if image.command else {}
    rootfs = {"type": "layers", "diff_ids": [_digest(layer)]}
    config = _json({"architecture": _architecture(), "os": "linux", "config": settings, "rootfs": rootfs, "history": []})
    media = "application/vnd.oci.image"
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{media}.manifest.v1+json",
            "config": {"mediaType": f"{media}.config.v1+json", "digest": _digest(config), "size": len(config)},
            "layers": [{"mediaType": f"{media}.layer.v1.tar", "digest": _digest(layer), "size": len(layer)}],
        }
    )
    described = {"mediaType": f"{media}.manifest.v1+json", "digest": _digest(manifest), "size": len(manifest)}
    index = _json(
        {
            "schemaVersion": 2,
            "manifests": [{**described, "annotations": {_NAME: name}} for name in image.names],
        }
    )
    blobs = {f"blobs/{_digest(blob).replace(':', '/')}": blob for blob in (layer, config, manifest)}
    with tarfile.open(target, "w") as archive:
        for name, content in {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": index, **blobs}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def _layer(image: Image, debian: Path) -> bytes:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in _FOLDERS if image.shell else ("etc", "proc", "sys", "dev", "tmp"):
            _add(tar, folder, tarfile.DIRTYPE, mode=0o1777 if folder == "tmp" else 0o755)
        _add(tar, "etc/passwd", content=_PASSWD.encode())
        _add(tar, "etc/group", content=_GROUP.encode())
        _add(tar, "etc/nsswitch.conf", content=b"hosts: files dns\n")
        if image.shell:
            _add_shell(tar, debian)
        written: dict[Path, str] = {}
        for path, file in image.files.items():
            mode = 0o6755 if path in image.setuid else 0o755 if os.access(file, os.X_OK) else 0o644
            if file in written:
                _add(tar, path[1:], tarfile.LNKTYPE, link=written[file], mode=mode)
            else:
                _add(tar, path[1:], content=file.read_bytes(), mode=mode)
            written.setdefault(file, path[1:])
    return layer.getvalue()


def _add_shell(tar: tarfile.TarFile, debian: Path) -> None:
    """Add busybox with its links, bash as the shell, and tools with their libraries."""
    busybox = debian / "bin/busybox"
    _add(tar, "bin/busybox", content=busybox.read_bytes(), mode=0o755)
    # bash hands variables with dots and dashes in their names on, as the shell of the real images does and busybox' does not.
    _add(tar, "bin/bash", content=(debian / "bin/bash-static").read_bytes(), mode=0o755)
    _add(tar, "bin/sh", tarfile.SYMTYPE, link="bash")
    tools = {name: shutil.which(name) for name in ("curl", "getent")}
    tools |= {"nc": str(debian / "bin/nc.openbsd"), "dig": str(debian / "usr/bin/dig"), "host": str(debian / "usr/bin/host")}
    names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        if name not in ("busybox", "sh", "bash", *tools):
            _add(tar, f"bin/{name}", tarfile.SYMTYPE, link="busybox")
    _add(tar, "lib", tarfile.SYMTYPE, link="usr/lib")
    _add(tar, "lib64", tarfile.SYMTYPE, link="usr/lib")
    libraries: dict[str, Path] = {}
    for name, program in tools.items():
        if program is not None:
            _add(tar, f"bin/{name}", content=Path(program).resolve().read_bytes(), mode=0o755)
            libraries |= _libraries(Path(program), debian)
    for name, file in libraries.items():
        _add(tar, f"usr/lib/{name}", content=file.read_bytes(), mode=0o755)


def _libraries(program: Path, debian: Path) -> dict[str, Path]:
    """Return the libraries that a program loads, by their names."""
    folders = ":".join(str(path) for path in debian.glob("usr/lib/*-linux-gnu"))
    lines = subprocess.run(
        ["ldd", program], capture_output=True, text=True, env={**os.environ, "LD_LIBRARY_PATH": folders}
    ).stdout.splitlines()
    paths = [Path(line.split("=>")[-1].strip().split(" ")[0]) for line in lines]
    return {path.name: path.resolve() for path in paths if path.is_absolute()}


def _add(
    tar: tarfile.TarFile, path: str, kind: bytes = tarfile.REGTYPE, *, content: bytes = b"", link: str = "", mode: int = 0o644
) -> None:
    entry = tarfile.TarInfo(path)
    entry.type, entry.size, entry.linkname, entry.mode = kind, len(content), link, mode
    tar.addfile(entry, io.BytesIO(content))


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
