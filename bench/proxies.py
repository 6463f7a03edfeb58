"""The proxies of ``python -m bench proxy`` as processes in front of the replay server, and the client that sends the load."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench import prepare
from bench.prepare import BUILD, HERE
from bench.replay import Replay
from bench.servers import administrator_files, scheduled_seconds
from kubeloop.config import load_config
from tests.realserver.serving import free_ports

KUBELOOP = "kubeloop proxy"
KUBECTL = "kubectl proxy"
MITMPROXY = "mitmproxy"
#: io.Copy between two TLS connections: it knows nothing of HTTP, and shows what the sockets and the encryption alone cost.
RELAY = "bare TLS relay in Go"

_KUBECTL_PROGRAM = str(Path(sys.executable).with_name("kubectl"))
_START = 60.0
_LIMIT = 600.0


@dataclass(frozen=True)
class RunningProxy:
    """A proxy that answers: its process, its URL, and the options of the load client for it."""

    pid: int
    url: str
    options: tuple[str, ...] = ()


@contextlib.contextmanager
def running_proxy(name: str, rules: str, effect: str, replay: Replay, flags: Sequence[str] = ()) -> Iterator[RunningProxy]:
    """Run a proxy in front of the replay server.

    Args:
        name: The program.
        rules: The rules, for kubeloop.
        effect: The same for mitmproxy's addon; empty: everything passes.
        replay: The replay server.
        flags: Further flags of kubeloop.

    Raises:
        RuntimeError: It did not start; the text has its last words.
    """
    with tempfile.TemporaryDirectory() as home, (Path(home) / "log").open("w+") as log:
        folder = Path(home)
        if name == KUBELOOP:
            context = _kubeloop(rules, replay, folder, log, flags)
        elif name == KUBECTL:
            context = _kubectl(replay, log)
        elif name == RELAY:
            context = _relay(replay, folder, log)
        else:
            context = _mitmproxy(effect, replay, folder, log)
        with context as proxy:
            yield proxy


@contextlib.contextmanager
def _kubeloop(rules: str, replay: Replay, folder: Path, log: IO[str], flags: Sequence[str]) -> Iterator[RunningProxy]:
    kubeconfig = folder / "kubeconfig"
    (folder / "rules.yaml").write_text(rules)
    command = [sys.executable, "-m", "kubeloop", "proxy", "--rules", str(folder / "rules.yaml"), "--kubeconfig", str(replay.kubeconfig)]
    command += ["--kubeconfig-out", str(kubeconfig), *flags]
    with _process(command, log) as process:
        assert process.stdout is not None
        if not process.stdout.readline().startswith("ready"):
            raise _not_started(KUBELOOP, log)
        with administrator_files(kubeconfig) as who:
            options = ("-ca", str(who.ca), "-cert", str(who.cert), "-key", str(who.key))
            yield RunningProxy(process.pid, who.server, options)


@contextlib.contextmanager
def _kubectl(replay: Replay, log: IO[str]) -> Iterator[RunningProxy]:
    with _process([_KUBECTL_PROGRAM, f"--kubeconfig={replay.kubeconfig}", "proxy", "--port=0"], log) as process:
        assert process.stdout is not None
        # Starting to serve on 127.0.0.1:41075
        address = process.stdout.readline().rpartition(" ")[2].strip()
        if not address:
            raise _not_started(KUBECTL, log)
        yield RunningProxy(process.pid, f"http://{address}")


@contextlib.contextmanager
def _relay(replay: Replay, folder: Path, log: IO[str]) -> Iterator[RunningProxy]:
    own = folder / "relay.pem"
    with authority_file(replay) as upstream:
        command = [str(BUILD / "relay"), "-upstream", replay.secure.removeprefix("https://"), "-ca", str(upstream), "-own", str(own)]
        with _process(command, log) as process:
            assert process.stdout is not None
            line = process.stdout.readline().split()
            if line[:1] != ["ready"]:
                raise _not_started(RELAY, log)
            yield RunningProxy(process.pid, f"https://{line[1]}", ("-ca", str(own)))


@contextlib.contextmanager
def _mitmproxy(effect: str, replay: Replay, folder: Path, log: IO[str]) -> Iterator[RunningProxy]:
    (port,) = free_ports(1)
    with authority_file(replay) as upstream:
        settings = {"confdir": folder, "ssl_verify_upstream_trusted_ca": upstream, "listen_host": "127.0.0.1", "listen_port": port}
        command = [str(prepare.MITMPROXY), "--quiet", "--mode", f"reverse:{replay.secure}"]
        command += ["-s", str(HERE / "peers" / "proxies" / "mitmproxy_rules.py")]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        authority = folder / "mitmproxy-ca-cert.pem"
        with _process(command, log, BENCH_RULE=effect) as process:
            end = time.monotonic() + _START
            while not (authority.exists() and _answers(port)):
                if process.poll() is not None or time.monotonic() > end:
                    raise _not_started(MITMPROXY, log)
                time.sleep(0.1)
            yield RunningProxy(process.pid, f"https://127.0.0.1:{port}", ("-ca", str(authority)))


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def _process(command: Sequence[str], log: IO[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ | environment)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _not_started(name: str, log: IO[str]) -> RuntimeError:
    log.seek(0)
    return RuntimeError(f"{name} did not start: {log.read().strip()[-800:]}")


class LoadClient:
    """The Go program that sends the load, connected and warm."""

    def __init__(self, process: subprocess.Popen[str], words: Callable[[], str]) -> None:
        self._process = process
        self._words = words
        if self._line() != "ready\n":
            raise RuntimeError(f"the load client failed: {words()}")

    def begin(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def finish(self) -> dict[str, float]:
        """Let it begin, or end its watches, and return its figures.

        Raises:
            RuntimeError: A request failed.
        """
        self.begin()
        line = self._line()
        if not line:
            raise RuntimeError(f"the load client failed: {self._words()}")
        found: dict[str, float] = json.loads(line)
        return found

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextlib.contextmanager
def load_client(url: str, *options: str) -> Iterator[LoadClient]:
    """Run the load client until it is ready, and end it afterwards."""
    with tempfile.TemporaryFile("w+") as log:

        def words() -> str:
            log.seek(0)
            return log.read().strip()[-800:]

        command = [str(BUILD / "proxyload"), "-url", url, *options]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield LoadClient(process, words)
        finally:
            process.kill()
            process.communicate()


@contextlib.contextmanager
def authority_file(replay: Replay) -> Iterator[Path]:
    """Write the replay server's authority to a file, which is removed afterwards."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "ca.pem"
        authority = load_config(replay.kubeconfig).ca
        assert authority is not None
        path.write_bytes(authority.read())
        yield path


def until_idle(pid: int, seconds: float = 0.3) -> None:
    """Wait until a process uses less than 1 % of a core, for two periods of ``seconds``.

    Raises:
        RuntimeError: It is busy for 10 minutes.
    """
    end, quiet, spent = time.monotonic() + _LIMIT, 0, scheduled_seconds(pid)
    while quiet < 2:
        time.sleep(seconds)
        before, spent = spent, scheduled_seconds(pid)
        quiet = quiet + 1 if spent - before < 0.01 * seconds else 0
        if time.monotonic() > end:
            raise RuntimeError(f"the proxy was still busy after {_LIMIT:g} s")
