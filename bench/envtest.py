"""What envtest starts: kubeloop's launchers beside etcd and kube-apiserver, with the flags that envtest passes.

python -m bench.envtest               five starts of each, interleaved, with 500 ConfigMaps after each start; about a minute
KUBELOOP_REALSERVER_BIN=DIR ...       takes etcd and kube-apiserver from there instead of building them
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.servers import processor_seconds, resident_mib
from kubeloop.pki import CertificateAuthority
from tests.realserver.building import binaries

OURS, REAL = "kubeloop", "etcd and kube-apiserver"
#: Seconds between polls; envtest's own 100 ms would hide the measured time.
_POLL = 0.005
_PATIENCE = 120.0


@dataclass(frozen=True)
class Start:
    """One start: wall time until /health and then /healthz answer 200, CPU and memory of both processes, the load, the end.

    ``help_cpu_s``: the CPU of ``--help`` of both, which envtest asks for before each start.
    """

    etcd_s: float
    apiserver_s: float
    start_cpu_s: float
    help_cpu_s: float
    fresh_mib: float
    load_s: float
    load_cpu_s: float
    loaded_mib: float
    stop_s: float


def measure(programs: Path, objects: int) -> Start:
    """Raises RuntimeError: a program ended before it answered; with its last words."""
    with tempfile.TemporaryDirectory(prefix="bench-envtest-") as text:
        folder = Path(text)
        help_cpu = sum(_cpu_of_help(programs / name) for name in ("etcd", "kube-apiserver"))
        etcd_port, peer_port, port = _free_port(), _free_port(), _free_port()
        client = _write_keys(folder)
        url = f"http://127.0.0.1:{etcd_port}"
        etcd_flags = [f"--listen-client-urls={url}", f"--advertise-client-urls={url}", f"--listen-peer-urls=http://127.0.0.1:{peer_port}"]
        etcd_flags += [f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync=true"]
        began = time.perf_counter()
        with _running(programs / "etcd", etcd_flags, folder) as etcd:
            _wait(etcd, lambda: _status(http.client.HTTPConnection("127.0.0.1", etcd_port), "/health"))
            etcd_s = time.perf_counter() - began
            flags = _apiserver_flags(folder, url, port)
            began = time.perf_counter()
            with _running(programs / "kube-apiserver", flags, folder) as server:
                _wait(server, lambda: _status(http.client.HTTPSConnection("127.0.0.1", port, context=client), "/healthz"))
                apiserver_s = time.perf_counter() - began
                pids = [etcd.pid, server.pid]
                start_cpu = processor_seconds(pids)
                time.sleep(1)
                fresh = resident_mib(pids)
                before, began = processor_seconds(pids), time.perf_counter()
                _load(http.client.HTTPSConnection("127.0.0.1", port, context=client), objects)
                load_s, load_cpu, loaded = time.perf_counter() - began, processor_seconds(pids) - before, resident_mib(pids)
                began = time.perf_counter()
        return Start(etcd_s, apiserver_s, start_cpu, help_cpu, fresh, load_s, load_cpu, loaded, time.perf_counter() - began)


def _apiserver_flags(folder: Path, etcd: str, port: int) -> list[str]:
    """What envtest of controller-runtime 0.24 passes."""
    return [
        "--allow-privileged=true",
        "--authorization-mode=RBAC",
        "--bind-address=127.0.0.1",
        f"--cert-dir={folder}",
        f"--client-ca-file={folder / 'client-ca.crt'}",
        "--disable-admission-plugins=ServiceAccount",
        f"--etcd-servers={etcd}",
        f"--secure-port={port}",
        f"--service-account-issuer=https://127.0.0.1:{port}/",
        f"--service-account-key-file={folder / 'sa-signer.crt'}",
        f"--service-account-signing-key-file={folder / 'sa-signer.key'}",
        "--service-cluster-ip-range=10.0.0.0/24",
    ]


def _write_keys(folder: Path) -> ssl.SSLContext:
    """Writes what envtest writes. Returns an administrator's context, which trusts any server, as envtest's health check does."""
    authority = CertificateAuthority.create("bench")
    own = authority.issue("localhost", ip_addresses=("127.0.0.1",), server=True)
    admin = authority.issue("admin", ("system:masters",), client=True)
    files = {"apiserver.crt": own.certificate, "apiserver.key": own.key, "client-ca.crt": authority.certificate}
    signer = CertificateAuthority.create("sa-signer")
    files |= {"sa-signer.crt": signer.certificate, "sa-signer.key": signer.key, "admin.pem": admin.certificate + admin.key}
    for name, content in files.items():
        (folder / name).touch(0o600)
        (folder / name).write_bytes(content)
    context = ssl._create_unverified_context()
    context.load_cert_chain(folder / "admin.pem")
    return context


def _load(connection: http.client.HTTPSConnection, objects: int) -> None:
    """A small test suite's share: each object is made, read, patched and deleted. Raises RuntimeError."""
    path = "/api/v1/namespaces/default/configmaps"
    for number in range(objects):
        one = f"{path}/c{number}"
        _request(connection, "POST", path, {"metadata": {"name": f"c{number}"}, "data": {"k": "v"}})
        _request(connection, "GET", one)
        _request(connection, "PATCH", one, {"data": {"k": "w"}}, "application/merge-patch+json")
        _request(connection, "DELETE", one)


def _request(connection: http.client.HTTPSConnection, method: str, path: str, body: Any = None, kind: str = "application/json") -> None:
    connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": kind})
    answer = connection.getresponse()
    said = answer.read()
    if answer.status >= 300:
        raise RuntimeError(f"{method} {path}: {answer.status} {said.decode()[:300]}")


def _status(connection: http.client.HTTPConnection, path: str) -> int:
    """0: nothing answers yet."""
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def _wait(process: subprocess.Popen[bytes], status: Callable[[], int]) -> None:
    end = time.monotonic() + _PATIENCE
    while status() != 200:
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{process.args!r} does not answer")
        time.sleep(_POLL)


def _cpu_of_help(program: Path) -> float:
    before = os.times()
    subprocess.run([program, "--help"], check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


@contextlib.contextmanager
def _running(program: Path, flags: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with (folder / f"{program.name}.log").open("wb") as log:
        process = subprocess.Popen([program, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        try:
            yield process
        except BaseException:
            print((folder / f"{program.name}.log").read_text()[-2000:], file=sys.stderr)
            raise
        finally:
            process.terminate()
            process.wait(60)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.envtest", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--objects", type=int, default=500)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-assets-") as assets:
        subprocess.run([sys.executable, "-m", "kubeloop", "envtest-assets", assets], check=True, capture_output=True)
        programs = {OURS: Path(assets), REAL: binaries()}
        measure(programs[OURS], 1)  # writes the byte code
        found: dict[str, list[Start]] = {name: [] for name in programs}
        for _ in range(args.starts):
            for name, folder in programs.items():
                found[name].append(measure(folder, args.objects))
    table = Table(title=f"what envtest starts, medians of {args.starts} (all values: least to most)")
    for column in ("", *found):
        table.add_column(column)
    for field in Start.__dataclass_fields__:
        cells = []
        for starts in found.values():
            values = sorted(getattr(one, field) for one in starts)
            cells.append(f"{statistics.median(values):.3g} ({values[0]:.3g} to {values[-1]:.3g})")
        table.add_row(field, *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
