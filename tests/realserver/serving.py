"""Runs kube-apiserver on etcd: on loopback, on free ports, on a fresh store, with new certificates."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from kubeloop.pki import CertificateAuthority
from kubeloop.pki.files import write_secret
from tests.realserver.building import CannotBuild, directory

_PATIENCE = 60.0
#: The file beside the kubeconfig that has the URL of etcd.
ETCD = "etcd.url"


@contextlib.contextmanager
def real_server(binaries: Path, flags: Sequence[str] = ()) -> Iterator[Path]:
    """The path of an administrator's kubeconfig, while the server runs; ``ca.crt``, ``ca.key``, ``sa.key`` and ``etcd.url`` lie beside it.
    ``flags``: kube-apiserver's, beside the necessary ones.

    Raises:
        CannotBuild: a program ended, or was not ready within a minute; its log is in the text.
    """
    directory().mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="run-", dir=directory()))
    running: list[subprocess.Popen[bytes]] = []
    try:
        port, client_port, peer_port = free_ports(3)
        _write_certificates(home)
        (home / ETCD).write_text(f"http://127.0.0.1:{client_port}")
        running.append(_start(_etcd(binaries, home, client_port, peer_port), home / "etcd.log"))
        _await(f"http://127.0.0.1:{client_port}/health", running[-1], home / "etcd.log", None)
        running.append(_start([*_apiserver(binaries, home, port, client_port), *flags], home / "apiserver.log"))
        # The system namespaces come shortly after readiness; what creates objects needs them.
        for path in ("/readyz", "/api/v1/namespaces/default"):
            _await(f"https://127.0.0.1:{port}{path}", running[-1], home / "apiserver.log", _trusting(home))
        yield _write_kubeconfig(home, port)
    finally:
        # Nothing of the run is used again, and with open watches a kube-apiserver takes long to end by itself.
        for process in reversed(running):
            process.kill()
            process.wait()
        shutil.rmtree(home, ignore_errors=True)


def _etcd(binaries: Path, home: Path, client_port: int, peer_port: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    # Nothing in this store outlives the run, so nothing waits for a disk.
    return [
        str(binaries / "etcd"), f"--data-dir={home / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn",
        f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
    ]  # fmt: skip


def _apiserver(binaries: Path, home: Path, port: int, client_port: int) -> list[str]:
    issuer = "https://kubernetes.default.svc.cluster.local"
    # The advertised address must not be loopback; no client connects to it.
    return [
        str(binaries / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{client_port}",
        "--bind-address=127.0.0.1", f"--secure-port={port}", "--advertise-address=192.0.2.1",
        f"--tls-cert-file={home / 'server.crt'}", f"--tls-private-key-file={home / 'server.key'}", f"--client-ca-file={home / 'ca.crt'}",
        "--authorization-mode=Node,RBAC", "--service-cluster-ip-range=10.0.0.0/24", "--allow-privileged=true",
        f"--service-account-issuer={issuer}", f"--service-account-key-file={home / 'sa.crt'}",
        f"--service-account-signing-key-file={home / 'sa.key'}",
    ]  # fmt: skip


def _write_certificates(home: Path) -> None:
    authority = CertificateAuthority.create("kubeloop-realserver")
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    server = authority.issue("kube-apiserver", server=True, dns_names=names, ip_addresses=["127.0.0.1", "10.0.0.1"])
    admin = authority.issue("kubeloop-admin", ["system:masters"], client=True)
    accounts = authority.issue("service-accounts", client=True)
    write_secret(home / "ca.crt", authority.certificate)
    write_secret(home / "ca.key", authority.key)  # as sa.key: for kube-controller-manager, which signs with both
    for name, issued in (("server", server), ("admin", admin), ("sa", accounts)):
        write_secret(home / f"{name}.crt", issued.certificate)
        write_secret(home / f"{name}.key", issued.key)


def _write_kubeconfig(home: Path, port: int) -> Path:
    path = home / "kubeconfig"
    user = {"client-certificate": "admin.crt", "client-key": "admin.key"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": {"server": f"https://127.0.0.1:{port}", "certificate-authority": "ca.crt"}}],
        "users": [{"name": "admin", "user": user}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "admin"}}],
        "current-context": "real",
    }
    write_secret(path, msgspec.json.encode(content))
    return path


def free_ports(count: int) -> list[int]:
    """For programs that cannot choose a port by themselves."""
    # Held together, so that they differ.
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=log.parent)


def _trusting(home: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(home / "ca.crt"))
    context.load_cert_chain(home / "admin.crt", home / "admin.key")
    return context


def _await(url: str, process: subprocess.Popen[bytes], log: Path, context: ssl.SSLContext | None) -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        if process.poll() is not None:
            raise CannotBuild(f"{log.stem} ended with exit status {process.returncode}:\n{_tail(log)}")
        try:
            with urllib.request.urlopen(url, context=context, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.05)
    raise CannotBuild(f"{log.stem} was not ready within {_PATIENCE:g} s:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])
