"""Client, informers, manager and command line on systems without POSIX modules, signals and loops' signal handlers: macOS and Windows.

Simulated: a process in which these are hidden before kubeloop is imported. What only such a system shows (its paths, its file modes,
its event loop) is not tested here.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import ServerUnderTest

#: Before anything else: as on Windows, where these modules, signals and functions do not exist and loops read sockets only.
PRELUDE = """
import select
for name in ("poll", "epoll", "kqueue", "devpoll"):
    if hasattr(select, name):
        delattr(select, name)
import asyncio, importlib.abc, os, pathlib, signal, socket, subprocess, sys, tempfile, shutil, threading, zipfile, http.client

HIDDEN = {"fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog", "crypt"}
for name in HIDDEN:
    sys.modules.pop(name, None)

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Blocker())
for name in ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL", "SIGALRM", "SIGPIPE", "SIGQUIT",
             "SIGCHLD", "pthread_sigmask", "SIG_BLOCK"):
    if hasattr(signal, name):
        delattr(signal, name)
for name in ("fork", "chown", "fchmod", "fchown", "geteuid", "getuid", "getgid", "uname", "mkfifo",
             "O_CLOEXEC", "O_NOFOLLOW", "O_DIRECTORY"):
    if hasattr(os, name):
        delattr(os, name)

import selectors, stat
register = selectors.SelectSelector.register

def register_socket(self, fileobj, events, data=None):
    number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
    # subprocess itself reads its pipes in threads on Windows.
    if not stat.S_ISSOCK(os.fstat(number).st_mode) and sys._getframe(1).f_globals["__name__"] != "subprocess":
        raise OSError(10038, "An operation was attempted on something that is not a socket")
    return register(self, fileobj, events, data)

selectors.SelectSelector.register = register_socket
subprocess.Popen.kill = subprocess.Popen.terminate
assert selectors.DefaultSelector is selectors.SelectSelector

class Loop(asyncio.SelectorEventLoop):
    def add_signal_handler(self, *args):
        raise NotImplementedError
    def remove_signal_handler(self, *args):
        raise NotImplementedError
    def add_reader(self, *args):
        raise NotImplementedError
    def add_writer(self, *args):
        raise NotImplementedError

class Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = Loop

asyncio.set_event_loop_policy(Policy())
"""
IMPORTS = """
import kubeloop, pkgutil, importlib
for name in kubeloop.__all__:
    getattr(kubeloop, name)
import kubeloop.api.core.v1
LEFT_OUT = ("kubeloop.api.", "kubeloop.cli.new.template")
for found in pkgutil.walk_packages(kubeloop.__path__, "kubeloop."):
    if not found.name.startswith(LEFT_OUT) and not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if error.name and not error.name.startswith("kubeloop") and error.name not in HIDDEN:
                continue  # an extra that is not installed
            raise
print("imported")
"""
CLIENT = """
import kubeloop
from kubeloop import Client, Controller, Manager, ObjectMeta, Result
from kubeloop.api.core.v1 import ConfigMap

class Copier(Controller[ConfigMap]):
    async def reconcile(self, found):
        if found.metadata.name == sys.argv[2]:
            print("reconciled", flush=True)

async def main():
    async with Client.from_config(sys.argv[1]) as client:
        await client.create(ConfigMap(metadata=ObjectMeta(name=sys.argv[2], namespace="default")))
        await Manager(client, [Copier()], settings=sys.argv[3]).run()
        await client.delete(ConfigMap, sys.argv[2], namespace="default")
    print("in order", flush=True)

kubeloop.run(main())
"""
COMMAND = "\nsys.argv[0] = 'kubeloop'\nfrom kubeloop.cli import main\nmain()\n"


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}


async def _start(folder: Path, body: str, *args: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PRELUDE + body, *args),
        cwd=folder,
        env=_environment(folder),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


def _run(folder: Path, body: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PRELUDE + body, *args]
    return subprocess.run(command, cwd=folder, env=_environment(folder), capture_output=True, text=True, check=False)


def test_every_module_can_be_imported(tmp_path: Path) -> None:
    done = _run(tmp_path, IMPORTS)
    assert (done.returncode, done.stdout) == (0, "imported\n"), done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_manager_reconciles_and_stops_in_order_on_a_signal(tmp_path: Path, server: ServerUnderTest, number: signal.Signals) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text("grace: 5\n")
    process = await _start(tmp_path, CLIENT, str(server.kubeconfig), f"portable-{number.name.lower()}-{os.getpid()}", str(settings))
    assert process.stdout is not None
    assert process.stderr is not None
    if await process.stdout.readline() != b"reconciled\n":
        pytest.fail((await process.stderr.read()).decode())
    process.send_signal(number)
    out, err = await process.communicate()
    assert (process.returncode, out) == (0, b"in order\n"), err.decode()
    assert f"{number.name}: stopping" in err.decode()


async def test_kubeloop_watch_shows_changes_and_ends_on_ctrl_c(tmp_path: Path, server: ServerUnderTest) -> None:
    process = await _start(tmp_path, COMMAND, "watch", "namespaces", "--initial", "--kubeconfig", str(server.kubeconfig))
    assert process.stdout is not None
    assert b"INITIAL" in await process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = await process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        pytest.param(["-h"], 0, "Usage: kubeloop", id="help"),
        pytest.param(["config", "get-contexts", "--kubeconfig", "KUBECONFIG"], 0, "CURRENT", id="config reads"),
        pytest.param(["config", "use-context", "kubeloop", "--kubeconfig", "COPY"], 0, "Switched to context", id="config writes"),
        pytest.param(["doctor", "--kubeconfig", "KUBECONFIG"], 0, "answered in", id="doctor asks a cluster"),
        pytest.param(["run", "app:app"], 1, "kubeloop run needs Linux or macOS", id="run says what it needs"),
        pytest.param(["server", "--data", "data"], 1, "no server can store its objects on disk here", id="a server's --data says so"),
    ],
)
@pytest.mark.embedded
def test_a_command_runs_or_says_what_it_needs(tmp_path: Path, server: ServerUnderTest, args: list[str], status: int, message: str) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(server.kubeconfig.read_bytes())
    done = _run(tmp_path, COMMAND, *({"KUBECONFIG": str(server.kubeconfig), "COPY": str(copy)}.get(one, one) for one in args))
    assert done.returncode == status, done.stderr
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.embedded
async def test_the_embedded_server_runs_and_ends_with_its_standard_input(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PRELUDE + COMMAND, "server", "--no-controllers", "--exit-with-stdin"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=_environment(tmp_path), stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    assert process.stdin is not None
    assert (await process.stdout.readline()).startswith(b"ready https://127.0.0.1:")
    process.stdin.close()
    _, err = await process.communicate()
    assert process.returncode == 0, err.decode()


LOCAL_CLUSTER = """
from kubeloop import Client, ConfigError
from kubeloop.api.core.v1 import Namespace
from kubeloop.testing import LocalCluster

async def main():
    async with LocalCluster(controllers=False) as cluster:
        print((await cluster.client.get(Namespace, "default")).metadata.name)
        await asyncio.to_thread(cluster.restart)
        print((await cluster.client.get(Namespace, "default")).metadata.name)
        folder = cluster.kubeconfig.parent
    print(folder.exists())

asyncio.run(main())
for wrong in ({"history": -1.0}, {"timeout": 0.01}):
    try:
        with LocalCluster(**wrong):
            pass
    except ConfigError as error:
        print(str(error).splitlines()[0])
"""


@pytest.mark.embedded
def test_a_local_cluster_starts_ends_and_says_why_it_does_not_start(tmp_path: Path) -> None:
    done = _run(tmp_path, LOCAL_CLUSTER)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "default", "default", "False", "the server ended with exit status 2:", "the server was not ready within 0.01 s:",
    ]  # fmt: skip


def test_errors_of_persisted_informers_and_dumps_on_a_signal_name_the_missing_feature(tmp_path: Path) -> None:
    body = """
from kubeloop import Client, ConfigError, InformerFactory
from kubeloop.config import ClusterConfig
from kubeloop.transport import Transport

async def main():
    async with Client(Transport(ClusterConfig(server="http://127.0.0.1:9"))) as client:
        try:
            async with InformerFactory(client, persist="state"):
                pass
        except ConfigError as error:
            print(error)
        try:
            InformerFactory(client).dump_on_signal()
        except RuntimeError as error:
            print(error)

asyncio.run(main())
"""
    done = _run(tmp_path, body)
    assert done.returncode == 0, done.stderr
    persisted, dumped = done.stdout.splitlines()
    assert persisted == "persist=: this system has no file locks; informers cannot be persisted here"
    assert dumped.startswith("this system has no SIGUSR1: give another signal")
