"""What a real node consists of: programs built from Go modules, and files of Debian packages. Fetched and built once, then cached."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.realserver.building import NO_GO, CannotBuild, build, directory

SOURCES = Path(__file__).parent / "go"
#: Program -> module (a folder of ``go``), go's verb, package.
_PROGRAMS: dict[str, tuple[str, list[str], str]] = {
    "kubelet": ("kubernetes", ["build"], "k8s.io/kubernetes/cmd/kubelet"),
    "kube-proxy": ("kubernetes", ["build"], "k8s.io/kubernetes/cmd/kube-proxy"),
    "agnhost": ("kubernetes", ["build"], "k8s.io/kubernetes/test/images/agnhost"),
    "nnp": ("kubernetes", ["build"], "k8s.io/kubernetes/test/images/nonewprivs"),
    "sample-apiserver": ("kubernetes", ["build"], "k8s.io/sample-apiserver"),
    **{
        name: ("containerd", ["build", "-tags", "no_btrfs no_zfs no_devmapper"], f"github.com/containerd/containerd/v2/cmd/{name}")
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    },
    "coredns": ("coredns", ["build"], "."),
}
#: Debian packages whose files a node needs, with the libraries that a small system may lack.
_PACKAGES = (
    "runc", "containernetworking-plugins", "iptables", "conntrack", "busybox-static", "bash-static", "netcat-openbsd",
    "libseccomp2", "libbsd0", "libmd0", "bind9-dnsutils", "bind9-host", "bind9-libs", "libjemalloc2", "libmaxminddb0", "liblmdb0",
    "libprotobuf-c1", "libfstrm0", "libuv1", "libjson-c5",
    "libip4tc2", "libip6tc2", "libxtables12", "libmnl0", "libnetfilter-conntrack3", "libnfnetlink0", "libnftnl11",
)  # fmt: skip


def programs() -> Path:
    """Return the folder of the programs, built now if they are not there.

    Raises:
        CannotBuild: There is no Go, or a build failed.
    """
    target = (directory() / f"nodes-{_digest()}").absolute()
    missing = [name for name in _PROGRAMS if not (target / name).is_file()]
    go = shutil.which("go") if missing else ""
    if go is None:
        raise CannotBuild(NO_GO)
    target.mkdir(parents=True, exist_ok=True)
    for name in missing:
        module, verb, package = _PROGRAMS[name]
        build(go, verb, package, target / name, SOURCES / module)
    return target


def debian_files() -> Path:
    """Return a folder with the files of the Debian packages, downloaded now if they are not there.

    Raises:
        CannotBuild: This is no Debian, or a package cannot be downloaded.
    """
    target = (directory() / f"nodes-debian-{hashlib.sha256(' '.join(_PACKAGES).encode()).hexdigest()[:12]}").absolute()
    if target.is_dir():
        return target
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise CannotBuild("a real node takes runc and the CNI plugins from Debian packages: apt-get and dpkg-deb are not here")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        _run(["apt-get", "download", *_PACKAGES], folder)
        unfinished = Path(folder, "root")
        for name in ("bin", "sbin", "lib"):  # as the packages' own system has them
            (unfinished / "usr" / name).mkdir(parents=True)
            (unfinished / name).symlink_to(f"usr/{name}")
        for package in sorted(Path(folder).glob("*.deb")):
            _run(["dpkg-deb", "-x", str(package), str(unfinished)], folder)
        for name in ("iptables", "ip6tables"):  # as the packages' scripts link them at their installation
            for end in ("", "-save", "-restore"):
                (unfinished / "usr/sbin" / f"{name}{end}").symlink_to(f"{name}-nft{end}")
        unfinished.rename(target)
    return target


def _run(command: list[str], folder: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise CannotBuild(f"{' '.join(command)} failed; `apt-get update` may help:\n{done.stderr}")


def _digest() -> str:
    digest = hashlib.sha256()
    for file in sorted(SOURCES.rglob("*")):
        if file.is_file():
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
