"""How a user's program ends when something fails: its exit status, and the lines on its standard error. Real processes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.servers import ServerUnderTest

_HEAD = """
import asyncio, sys
import kubeloop
from msgspec.structs import replace
from kubeloop import Client, Controller, InformerFactory, Manager
from kubeloop.api.core.v1 import ConfigMap, Namespace
from kubeloop.config import ClusterConfig, ImpersonatedUser, load_config
from kubeloop.transport import Transport

class Copier(Controller[ConfigMap]):
    async def reconcile(self, key):
        return None
"""
_NO_CONFIGURATION = """
async def main():
    async with Client.from_config() as client:
        await client.list(ConfigMap)
"""
_REFUSED = """
async def main():
    async with Client(Transport(ClusterConfig(server="http://127.0.0.1:9"))) as client:
        await client.list(ConfigMap)
"""
_REFUSED_MANAGER = """
async def main():
    async with Client(Transport(ClusterConfig(server="http://127.0.0.1:9"))) as client:
        await Manager(client, [Copier()], sync_timeout=0.3).run()
"""
_FORBIDDEN = """
async def main():
    config = load_config(sys.argv[1])
    config = replace(config, credentials=replace(config.credentials, impersonate=ImpersonatedUser(user="eve")))
    async with Client(Transport(config)) as client:
        await Manager(client, [Copier()]).run()
"""
_INFORMERS = """
async def main():
    async with Client.from_config(sys.argv[1]) as client, InformerFactory(client) as informers:
        informers.for_kind(Namespace)
        await informers.wait_synced()
        print("ready", flush=True)
        await asyncio.Event().wait()
"""
_FAULT_IN_A_GROUP = """
async def fails():
    raise ZeroDivisionError("a fault of the program")

async def main():
    async with asyncio.TaskGroup() as group:
        group.create_task(fails())
"""
_FAILURE_IN_A_GROUP = """
async def main():
    async with asyncio.TaskGroup() as group:
        group.create_task(lists())

async def lists():
    async with Client(Transport(ClusterConfig(server="http://127.0.0.1:9"))) as client:
        await client.list(ConfigMap)
"""


class Program:
    """A user's file at work in a folder."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self.folder, self.kubeconfig = folder, kubeconfig

    async def start(self, body: str, runner: str, **env: str) -> asyncio.subprocess.Process:
        file = self.folder / "app.py"
        file.write_text(f"{_HEAD}{body}\n{runner}(main())\n")
        clean = {name: value for name, value in os.environ.items() if name not in ("KUBECONFIG", "PYTHONASYNCIODEBUG")}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, str(file), str(self.kubeconfig)),
            cwd=self.folder,
            env={**clean, "HOME": str(self.folder), "PYTHONPATH": os.pathsep.join(sys.path), **env},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def ends(self, body: str, runner: str, **env: str) -> tuple[int, str]:
        process = await self.start(body, runner, **env)
        _, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, err.decode()


@pytest.fixture
def program(tmp_path: Path, server: ServerUnderTest) -> Program:
    return Program(tmp_path, server.kubeconfig)


@pytest.mark.parametrize(
    ("body", "plain", "message"),
    [
        pytest.param(_NO_CONFIGURATION, 22, r"error: ConfigError: no configuration found: .*set KUBECONFIG", id="no kubeconfig"),
        pytest.param(_REFUSED, 36, r"error: ConnectionRefused: .*is the server running", id="a client without a server"),
        pytest.param(_REFUSED_MANAGER, 22, r"error: DeadlineError: .*not synced: configmaps", id="a manager without a server"),
        pytest.param(
            _FORBIDDEN,
            24,
            r"error: Forbidden: .*what it takes: kubectl create clusterrole NAME --verb=list",
            id="a manager without permission",
        ),
        pytest.param(_FAILURE_IN_A_GROUP, 60, r"error: ConnectionRefused: .*is the server running", id="a failure in a task group"),
    ],
)
async def test_a_failure_of_the_cluster_ends_a_program_with_a_message_and_the_user_s_own_line(
    program: Program, body: str, plain: int, message: str
) -> None:
    status, err = await program.ends(body, "kubeloop.run")
    lines = err[err.index("error: ") :].splitlines()
    assert status == 1, err
    assert re.match(message, lines[0]), err
    assert re.match(r"  at app.py:\d+, in (main|lists) \(KUBELOOP_TRACEBACK=1 shows the traceback\)", lines[-1]), err
    assert len(lines) <= 3, err
    assert "Traceback" not in err
    # asyncio.run adds frames of asyncio and of the program; kubeloop's own are few.
    status, err = await program.ends(body, "asyncio.run")
    trace = err[err.index("Traceback") if "ExceptionGroup" not in err else 0 :].splitlines()
    assert status == 1
    assert len(trace) <= plain, err


async def test_the_whole_traceback_is_shown_on_request(program: Program) -> None:
    status, err = await program.ends(_REFUSED, "kubeloop.run", KUBELOOP_TRACEBACK="1")
    assert status == 1
    assert "Traceback (most recent call last)" in err
    assert "transport.py" in err


async def test_a_fault_of_the_program_keeps_its_traceback_and_loses_its_group(program: Program) -> None:
    status, err = await program.ends(_FAULT_IN_A_GROUP, "kubeloop.run")
    assert status == 1
    assert err.splitlines()[-1] == "ZeroDivisionError: a fault of the program"
    assert "ExceptionGroup" not in err
    assert 'app.py", line' in err


@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, 130, id="Ctrl-C ends a program with 130"),
        pytest.param(signal.SIGTERM, 143, id="SIGTERM ends a program with 143, after it has cleaned up"),
    ],
)
async def test_a_signal_ends_a_program_without_a_traceback(program: Program, number: signal.Signals, status: int) -> None:
    process = await program.start(_INFORMERS + '\n    print("unreachable")\n', "kubeloop.run")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    out, err = await process.communicate()
    assert (process.returncode, out, err.decode()) == (status, b"", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_manager_within_stops_gracefully_on_a_signal(program: Program, number: signal.Signals) -> None:
    body = """
async def main():
    async with Client.from_config(sys.argv[1]) as client:
        async def ready():
            print("ready", flush=True)
            await asyncio.Event().wait()
        await Manager(client, [Copier(), ready]).run()
    print("in order")
"""
    process = await program.start(body, "kubeloop.run")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    out, err = await process.communicate()
    assert (process.returncode, out) == (0, b"in order\n"), err.decode()
    assert err.decode().splitlines() == [f"{number.name}: stopping; once more to exit at once"]


async def test_run_within_a_running_loop_says_what_to_write_instead() -> None:
    import kubeloop

    async def main() -> None: ...

    with pytest.raises(RuntimeError, match=r"write await main\(\) instead"):
        kubeloop.run(main())
