"""The etcd launcher as a process: health checks, its data directory, clients of etcd's API, its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.envtest.conftest import Launch, free_port, get, start_etcd

pytestmark = pytest.mark.embedded


def test_it_answers_health_checks_and_names_its_data_directory(launch: Launch, tmp_path: Path) -> None:
    _, port = start_etcd(launch, tmp_path / "data")
    assert get(port, "/health") == (200, '{"health":"true","reason":""}')
    assert get(port, "/readyz") == (200, "ok")
    status, body = get(port, "/kubeloop/store")
    assert (status, json.loads(body)) == (200, {"dataDir": str(tmp_path / "data"), "fsync": False})


def test_without_unsafe_no_fsync_writes_wait_for_the_disk(launch: Launch, tmp_path: Path) -> None:
    _, port = start_etcd(launch, tmp_path / "data", "--unsafe-no-fsync=false")
    assert json.loads(get(port, "/kubeloop/store")[1])["fsync"] is True


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("GET", "/version", id="the version of etcd"),
        pytest.param("GET", "/v2/keys", id="the old API"),
        pytest.param("POST", "/v3/kv/range", id="the JSON gateway"),
    ],
)
def test_etcds_http_api_is_refused_with_the_reason(launch: Launch, tmp_path: Path, method: str, path: str) -> None:
    _, port = start_etcd(launch, tmp_path / "data")
    status, body = get(port, path, method=method)
    assert status == 501
    assert "stores no keys and has no etcd API; talk to the API server instead" in body


def test_a_grpc_client_gets_unimplemented_with_the_reason(launch: Launch, tmp_path: Path) -> None:
    """Frames as a client of etcd v3 sends them: its preface, SETTINGS, a PING, and the header block of a call (here empty)."""
    _, port = start_etcd(launch, tmp_path / "data")
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000"))
        client.sendall(bytes.fromhex("000008060000000000") + b"12345678" + bytes.fromhex("000000010400000001"))
        stream = client.makefile("rb")
        frames: list[tuple[int, int, int, bytes]] = []
        while not frames or frames[-1][0] != 1:
            head = stream.read(9)
            frames.append((head[3], head[4], int.from_bytes(head[5:]), stream.read(int.from_bytes(head[:3]))))
    assert [frame[:3] for frame in frames] == [(4, 0, 0), (4, 1, 0), (6, 1, 0), (1, 5, 1)]
    assert frames[2][3] == b"12345678"
    trailers = frames[-1][3]
    assert trailers.startswith(b"\x88")
    assert b"grpc-status\x0212" in trailers
    assert b"stores no keys" in trailers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_it_with_status_0_and_frees_port_and_folder(launch: Launch, tmp_path: Path, number: signal.Signals) -> None:
    started, port = start_etcd(launch, tmp_path / "data")
    started.process.send_signal(number)
    assert started.process.wait(20) == 0
    assert get(port, "/health")[0] == 0
    again, _ = start_etcd(launch, tmp_path / "data")
    assert again.stop() == 0


def test_a_folder_left_by_a_kill_is_taken_again(launch: Launch, tmp_path: Path) -> None:
    started, _ = start_etcd(launch, tmp_path / "data")
    started.process.kill()
    started.process.wait()
    again, _ = start_etcd(launch, tmp_path / "data")
    assert again.stop() == 0


def test_it_ends_with_the_program_that_started_it(assets: Path, tmp_path: Path) -> None:
    port = free_port()
    arguments = [str(assets / "etcd"), f"--data-dir={tmp_path / 'data'}", f"--listen-client-urls=http://127.0.0.1:{port}"]
    script = f"import subprocess, sys\np = subprocess.Popen({arguments!r})\nprint(p.pid, flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        while get(port, "/health")[0] != 200:
            time.sleep(0.02)
        parent.kill()
    end = time.monotonic() + 20
    while _is_running(child):
        assert time.monotonic() < end, "it outlives its parent"
        time.sleep(0.05)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_port_that_is_taken_is_named(launch: Launch, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        started = launch("etcd", f"--data-dir={tmp_path / 'data'}", f"--listen-client-urls=http://127.0.0.1:{port}")
        assert started.process.wait(20) == 1
    assert f"listen tcp 127.0.0.1:{port}: Address already in use; end the program that uses the port" in started.log


def test_a_folder_in_use_is_named(launch: Launch, tmp_path: Path) -> None:
    start_etcd(launch, tmp_path / "data")
    second = launch("etcd", f"--data-dir={tmp_path / 'data'}", f"--listen-client-urls=http://127.0.0.1:{free_port()}")
    assert second.process.wait(20) == 1
    assert "is in use by another etcd of kubeloop; end that one, or name another directory" in second.log


def test_the_data_of_a_real_etcd_is_left_alone(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "data" / "member").mkdir(parents=True)
    started = launch("etcd", f"--data-dir={tmp_path / 'data'}", f"--listen-client-urls=http://127.0.0.1:{free_port()}")
    assert started.process.wait(20) == 1
    assert "holds the data of a real etcd, which kubeloop cannot read; name another directory" in started.log


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        pytest.param("--foo=1", "unknown flag: --foo", id="an unknown flag"),
        pytest.param("--cert-file=x", "does not implement --cert-file=x", id="TLS"),
        pytest.param("--listen-client-urls=https://127.0.0.1:1", "speaks http only", id="a URL with TLS"),
        pytest.param("--listen-client-urls=http://192.0.2.1:1", "serves this machine only", id="an address that others reach"),
        pytest.param("--listen-client-urls=http://127.0.0.1:99999", "the port is not a number from 0 to 65535", id="no port"),
    ],
)
def test_what_it_cannot_do_ends_it_with_status_1_and_the_reason(launch: Launch, tmp_path: Path, flag: str, message: str) -> None:
    started = launch("etcd", f"--data-dir={tmp_path / 'data'}", flag)
    assert started.process.wait(20) == 1
    assert message in started.log


def test_version_and_help_say_what_it_is(launch: Launch) -> None:
    for flag, text in (("--version", "etcd Version: 3.6"), ("--help", "--unsafe-no-fsync")):
        started = launch("etcd", flag)
        assert started.process.wait(20) == 0
        assert text in started.log
