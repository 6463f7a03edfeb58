"""Runs one client against the replay server, on its own ports and with its own certificate, and reads the client's measurements."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.clients import Peer
from bench.prepare import BUILD, HERE

JSON = dict[str, Any]
_ROOT = HERE.parent


class Replay:
    """The replay server, on free ports, plain and over TLS. A context manager."""

    def __init__(self, data: Path, copies: int = 1) -> None:
        self._data = data
        self._copies = copies

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        authority = Path(self._folder.name) / "ca.pem"
        self._process = subprocess.Popen(
            [BUILD / "server", "-data", self._data, "-copies", str(self._copies), "-ca", authority], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        ready, *addresses = self._process.stdout.readline().split() or [""]
        if ready != "ready":
            raise RuntimeError("the replay server did not start; its message is above")
        self.plain, self.secure = f"http://{addresses[0]}", f"https://{addresses[1]}"
        self.kubeconfig = Path(self._folder.name) / "kubeconfig"
        self.kubeconfig.touch(0o600)
        self.kubeconfig.write_text(_kubeconfig(self.secure, authority.read_bytes()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        self._process.communicate()
        self._folder.cleanup()

    def control(self, method: str, path: str) -> JSON:
        with urllib.request.urlopen(urllib.request.Request(f"{self.plain}/control/{path}", method=method)) as answer:
            found: JSON = json.load(answer)
        return found

    def run(self, peer: Peer, *, events: int, tls: bool = False, timeout: float = 300) -> dict[str, JSON]:
        """What the peer printed, by phase.

        Raises:
            RuntimeError: it failed, or took too long; the text has its last words.
        """
        self.control("POST", f"reset?events={events}")
        command, environment = self._command(peer, tls)
        try:
            done = subprocess.run(command, env=environment, cwd=_ROOT, capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{peer.name} was not done after {timeout:g} s") from None
        phases = {
            line["phase"]: line for line in map(json.loads, filter(lambda text: text.startswith('{"phase"'), done.stdout.splitlines()))
        }
        if done.returncode or "hold" not in phases:
            raise RuntimeError(f"{peer.name} failed with status {done.returncode}:\n{done.stderr.strip()[-1500:]}")
        return phases

    def start(self, peer: Peer) -> float:
        """CPU seconds of the whole process, from exec to exit, as the kernel accounts them."""
        command, environment = self._command(peer, tls=False)
        quiet = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
        here = Path.cwd()
        os.chdir(_ROOT)
        try:
            pid = os.posix_spawn(command[0], command, environment, file_actions=quiet)
        finally:
            os.chdir(here)
        _, status, usage = os.wait4(pid, 0)
        if status:
            raise RuntimeError(f"{peer.name} failed to get a pod: status {status}")
        return usage.ru_utime + usage.ru_stime

    def _command(self, peer: Peer, tls: bool) -> tuple[list[str], dict[str, str]]:
        info = self.control("GET", "info")
        namespace, _, name = info["pod_key"].partition("/")
        values = {"server": self.secure if tls else self.plain, "count": info["pods"], "last_rv": info["last_rv"], "get": info["pod_key"]}
        values |= {"kubeconfig": self.kubeconfig, "namespace": namespace, "name": name, "control": self.plain}
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)} | dict(peer.environment)
        return [part.format(**values) for part in peer.command], environment


def _kubeconfig(server: str, authority: bytes) -> str:
    """As a cluster's administrator gets it; the replay server lets everybody in."""
    return f"""\
apiVersion: v1
kind: Config
current-context: bench
clusters:
- name: bench
  cluster:
    server: {server}
    certificate-authority-data: {base64.b64encode(authority).decode()}
users:
- name: bench
  user:
    token: bench
contexts:
- name: bench
  context:
    cluster: bench
    user: bench
    namespace: default
"""


def busy(seconds: float = 1.0) -> float:
    """The share of the machine that is in use now (Linux; 0 elsewhere)."""

    def read() -> tuple[int, int]:
        values = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(values), values[3] + values[4]

    if not Path("/proc/stat").exists():
        return 0.0
    before = read()
    time.sleep(seconds)
    after = read()
    return 1 - (after[1] - before[1]) / max(1, after[0] - before[0])


def wait_quiet(limit: float, timeout: float) -> float:
    """Wait until less than ``limit`` of the machine is in use, but not longer than ``patience`` seconds; gives the last share seen."""
    until = time.monotonic() + timeout
    while (share := busy()) > limit and time.monotonic() < until:
        time.sleep(3)
    return share
