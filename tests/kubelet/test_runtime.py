"""Processes of containers, with each kind of isolation: files, commands, signals, failures, and the clean-up after a kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from kubeloop.kubelet.container_process import ContainerProcess, Launcher, ProcessExit, StartError
from kubeloop.kubelet.runtime import (
    BindMount,
    Isolation,
    ProcessRuntime,
    ProcessSpec,
    detect_isolation,
    end_leftovers,
)
from kubeloop.kubelet.streaming import Terminal

EACH = pytest.mark.parametrize("isolation", list(Isolation)[list(Isolation).index(detect_isolation(Path("/tmp"))) :])


def spec(tmp_path: Path, script: str, *, name: str = "c", mounts: tuple[BindMount, ...] = ()) -> ProcessSpec:
    environment = {"PATH": os.environ["PATH"], "COLOR": "red"}
    return ProcessSpec(f"{tmp_path.name}-{name}", ["sh", "-c", script], environment, tmp_path / name, hostname="pod-0", mounts=mounts)


async def output(process: ContainerProcess) -> str:
    parts = []

    async def write(name: str, data: bytes) -> None:
        if name == "stdout":
            parts.append(data)

    await process.copy_output(write)
    return b"".join(parts).decode()


def alive(mark: str) -> list[str]:
    """Return the command lines of processes whose arguments contain a text."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0") if entry.name.isdigit() else []
        except OSError:
            continue
        if mark in words:
            found.append(" ".join(words))
    return found


async def vanish(mark: str) -> None:
    for _ in range(100):
        if not alive(mark):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(alive(mark))


@EACH
async def test_a_program_runs_with_its_environment_and_ends_with_its_code(tmp_path: Path, isolation: Isolation) -> None:
    process = await ProcessRuntime(isolation).start(spec(tmp_path, "echo $COLOR; exit 3"))
    assert await output(process) == "red\n"
    assert await process.wait() == ProcessExit(3)
    await process.close()


@EACH
async def test_all_output_arrives_though_the_event_loop_or_the_client_is_slow(
    tmp_path: Path, isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeloop.kubelet.container_process._DRAIN", 0)
    process = await ProcessRuntime(isolation).start(spec(tmp_path, "head -c 100000 /dev/zero"))
    size = 0

    async def write(name: str, data: bytes) -> None:
        nonlocal size
        await process.wait()
        size += len(data)
        for _ in range(20):
            await asyncio.sleep(0)

    assert await process.copy_output(write) == ProcessExit(0)
    assert size == 100_000
    await process.close()


async def test_the_copy_of_output_ends_though_a_process_that_is_left_holds_it_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeloop.kubelet.container_process._DRAIN", 0.01)
    runtime = ProcessRuntime(detect_isolation(tmp_path))
    container = await runtime.start(spec(tmp_path, "sleep 1000"))
    command = await runtime.start(spec(tmp_path, "sleep 1000 & echo output", name="e"), join=container)
    assert await output(command) == "output\n"
    await command.close()
    await container.close()


async def test_streams_are_connected_whatever_their_numbers(tmp_path: Path) -> None:
    with contextlib.ExitStack() as files:
        while files.enter_context(Path(os.devnull).open("rb")).fileno() < 190:
            pass
        for _ in range(20):  # each start has other numbers around 200
            process = await ProcessRuntime(Isolation.NONE).start(spec(tmp_path, "echo out; echo error >&2; exit 5"))
            assert (await output(process), await process.wait()) == ("out\n", ProcessExit(5))
            await process.close()
            files.enter_context(Path(os.devnull).open("rb"))


async def test_a_client_waits_until_the_program_reads_its_input(tmp_path: Path) -> None:
    words = ProcessSpec("reader", ["sleep", "1000"], {"PATH": os.environ["PATH"]}, tmp_path / "r", stdin=True)
    process = await ProcessRuntime(Isolation.NONE).start(words)
    writing = asyncio.ensure_future(process.write(b"x" * (1 << 20)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not writing.done()
    process.kill()
    await writing
    await process.close()


@EACH
async def test_a_signal_that_ends_a_program_is_its_exit(tmp_path: Path, isolation: Isolation) -> None:
    process = await ProcessRuntime(isolation).start(spec(tmp_path, "exec sleep 1000"))
    process.signal(signal.SIGTERM)
    assert await process.wait() == ProcessExit(143, 15)
    await process.close()


@EACH
async def test_a_program_that_does_not_exist_is_not_started(tmp_path: Path, isolation: Isolation) -> None:
    missing = ProcessSpec("id", ["no-such-program"], {"PATH": os.environ["PATH"]}, tmp_path / "c")
    with pytest.raises(StartError, match=r'exec: "no-such-program": executable file not found in \$PATH'):
        await ProcessRuntime(isolation).start(missing)


@EACH
async def test_a_command_in_a_container_has_its_files_and_a_terminal(tmp_path: Path, isolation: Isolation) -> None:
    runtime, shown = ProcessRuntime(isolation), bytearray()
    process = await runtime.start(spec(tmp_path, "sleep 1000"))

    async def write(_: str, data: bytes) -> None:
        shown.extend(data)

    terminal = Terminal()
    terminal.write = write
    terminal.sizes.put_nowait(b'{"Width": 99, "Height": 33}')
    terminal.stdin.put_nowait(b"stty size; exit 4\n")
    words = ProcessSpec("exec", ["sh"], {"PATH": os.environ["PATH"]}, tmp_path / "e", tty=True, stdin=True)
    assert await runtime.run(words, process, terminal) == 4
    assert b"33 99" in shown
    await process.close()


async def test_all_output_to_a_terminal_arrives_though_the_program_ends_before_it_is_read(tmp_path: Path) -> None:
    words = ProcessSpec("short", ["echo", "output"], {"PATH": os.environ["PATH"]}, tmp_path / "t", tty=True)
    for _ in range(5):
        process = await ProcessRuntime(Isolation.NONE).start(words)
        await process.wait()
        for _ in range(20):  # the terminal's end is seen, too
            await asyncio.sleep(0)
        assert await output(process) == "output\r\n"
        await process.close()


@EACH
async def test_nothing_is_left_of_a_container_that_is_closed(tmp_path: Path, isolation: Isolation) -> None:
    mark = f"10{os.getpid()}1"
    process = await ProcessRuntime(isolation).start(spec(tmp_path, f"setsid sleep {mark} & sleep {mark}"))
    await process.close()
    await vanish(mark)


@EACH
async def test_nothing_is_left_of_a_container_whose_launcher_is_killed(tmp_path: Path, isolation: Isolation) -> None:
    mark = f"10{os.getpid()}2"
    process = await ProcessRuntime(isolation).start(spec(tmp_path, f"setsid sleep {mark} & sleep {mark}"))
    os.kill(process.launcher_pid, signal.SIGKILL)
    assert await process.wait() == ProcessExit(137, 9)
    end_leftovers(tmp_path.name)
    await vanish(mark)
    await process.close()


async def test_a_container_sees_its_volumes_and_leaves_this_machines_files_alone(tmp_path: Path) -> None:
    isolation = detect_isolation(tmp_path)
    if isolation is Isolation.NONE:
        return
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume/file").write_text("data ")
    mounts = (BindMount(tmp_path / "volume", "/etc/new/volume"), BindMount(tmp_path / "volume", "/fixed", readonly=True))
    script = (
        f"cat /etc/new/volume/file; hostname; touch /fixed/x 2>&1 | grep -o Read-only; echo > /etc/new/volume/out; touch {tmp_path}/lost"
    )
    process = await ProcessRuntime(isolation).start(spec(tmp_path, script, mounts=mounts))
    assert await output(process) == "data pod-0\nRead-only\n"
    await process.close()
    assert (tmp_path / "volume/out").exists()
    assert not (tmp_path / "lost").exists()
    assert not Path("/etc/new").exists()


async def test_a_hostile_mount_path_stays_in_the_container(tmp_path: Path) -> None:
    isolation = detect_isolation(tmp_path)
    if isolation is Isolation.NONE:
        return
    (tmp_path / "volume").mkdir()
    mounts = (BindMount(tmp_path / "volume", "/../../outside"),)
    with pytest.raises(StartError, match=r"mount path /../../outside contains \.\."):
        await ProcessRuntime(isolation).start(spec(tmp_path, "true", mounts=mounts))


async def test_the_pipes_of_a_launcher_are_closed_while_another_process_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeloop.kubelet.container_process._DRAIN", 0.01)
    before = set(Path("/proc/self/fd").iterdir())
    launcher = await Launcher.start(["/bin/sh", "-c", "sleep 1000 & echo $!; kill -9 $$"], [])
    assert launcher.process.stdout is not None
    holder = int(await launcher.process.stdout.readline())
    try:
        await launcher.close()
        assert set(Path("/proc/self/fd").iterdir()) == before
        assert launcher.process.returncode == -signal.SIGKILL
    finally:
        os.kill(holder, signal.SIGKILL)
