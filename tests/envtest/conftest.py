"""The launchers as envtest starts them: real processes on free ports, which are gone when the test ends."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeloop.cli import main


@pytest.fixture(scope="session")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The launchers, in a folder whose name needs quotes."""
    folder = tmp_path_factory.mktemp("go project's assets")
    done = CliRunner().invoke(main, ["envtest-assets", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


class Launched:
    """One started launcher."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str] | None = None) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0, env={**os.environ, **(environment or {})}
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_until(self, answers: Callable[[], bool]) -> None:
        """Polls as envtest does."""
        end = time.monotonic() + 40
        while not answers():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < end, self.log
            time.sleep(0.02)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(20)


Launch = Callable[..., Launched]


@pytest.fixture
def launch(assets: Path, tmp_path: Path) -> Iterator[Launch]:
    started: list[Launched] = []

    def begin(name: str, *arguments: str, environment: dict[str, str] | None = None) -> Launched:
        log = tmp_path / f"{name}-{len(started)}.log"
        started.append(Launched([str(assets / name), *arguments], log, environment))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


def get(port: int, path: str, *, tls: bool = False, method: str = "GET") -> tuple[int, str]:
    """Status and body; 0 where nothing listens."""
    try:
        context = ssl._create_unverified_context() if tls else None
        connection = (
            http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
            if tls
            else http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        )
        connection.request(method, path)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
    except OSError:
        return 0, ""
    return answer.status, text


def start_etcd(launch: Launch, folder: Path, *more: str) -> tuple[Launched, int]:
    """As envtest starts it."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    started = launch(
        "etcd",
        f"--advertise-client-urls={url}",
        f"--data-dir={folder}",
        f"--listen-client-urls={url}",
        f"--listen-peer-urls=http://127.0.0.1:{free_port()}",
        *(more or ("--unsafe-no-fsync=true",)),
    )
    started.wait_until(lambda: get(port, "/health")[0] == 200)
    return started, port


def start_apiserver(launch: Launch, etcd_port: int, certificates: Path, *more: str) -> tuple[Launched, int]:
    """With the flags that envtest passes, but for the certificates, which the server makes."""
    port = free_port()
    started = launch(
        "kube-apiserver",
        "--allow-privileged=true",
        "--authorization-mode=RBAC",
        "--bind-address=127.0.0.1",
        f"--cert-dir={certificates}",
        "--disable-admission-plugins=ServiceAccount",
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--secure-port={port}",
        "--service-cluster-ip-range=10.0.0.0/24",
        *more,
    )
    started.wait_until(lambda: get(port, "/healthz", tls=True)[0] == 200)
    return started, port
