"""A capture of a tapped command: TLS that nothing can read, until tshark gets the key log of ``kubeloop tap --keylog``."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.kubectl.runner import kubectl_binary, kubectl_environment
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server


@contextmanager
def capture(file: Path, *ports: int) -> Iterator[None]:
    """Captures the packets of these ports on loopback."""
    wanted = " or ".join(f"tcp port {port}" for port in ports)
    command = ["tcpdump", "-i", "lo", "--immediate-mode", "-U", "-w", str(file), wanted]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        if "listening on" not in line:
            pytest.skip(f"no packets can be captured here: {line.strip()}")
        yield
    finally:
        process.terminate()
        process.communicate(timeout=20)


def requests(file: Path, ports: tuple[int, int], *options: str) -> list[tuple[str, str, str]]:
    """The HTTP requests that tshark finds: port, method and path."""
    fields = [part for name in ("tcp.dstport", "http.request.method", "http.request.uri") for part in ("-e", name)]
    decode = [part for port in ports for part in ("-d", f"tcp.port=={port},tls")]
    command = ["tshark", "-r", str(file), *options, *decode, "-Y", "http.request", "-T", "fields", *fields]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [(port, method, path) for port, method, path in (line.split("\t") for line in done.stdout.splitlines())]


def test_the_key_log_opens_both_sides_of_a_capture(server: ServerUnderTest, tmp_path: Path) -> None:
    if not (shutil.which("tcpdump") and shutil.which("tshark")):
        pytest.skip("tcpdump or tshark is missing: apt-get install tcpdump tshark")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    upstream = urlsplit(server.config.server).port or 443
    file, keys = tmp_path / "packets", tmp_path / "keys"
    kubectl = [kubectl_binary(), "get", "--raw", "/api/v1/namespaces/default"]
    tap = [sys.executable, "-m", "kubeloop", "tap", "-q", "--port", str(port), "--keylog", str(keys), "--", *kubectl]
    with capture(file, port, upstream):
        subprocess.run(tap, env=kubectl_environment(tmp_path, server.kubeconfig), check=True, capture_output=True)
    assert requests(file, (port, upstream)) == []
    opened = requests(file, (port, upstream), "-o", f"tls.keylog_file:{keys}")
    assert sorted(opened) == sorted((str(one), "GET", "/api/v1/namespaces/default") for one in (port, upstream))
