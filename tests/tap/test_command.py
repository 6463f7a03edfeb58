"""The tapped command: signals before it runs, and its end when the tap itself is cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from kubeloop.tap.command import CommandNotRunnable, CommandSignals, Interrupted, check_command, run_command


async def test_a_signal_before_the_command_ends_the_tap() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted) as ended, CommandSignals():  # noqa: PT012 - the block as a program has it
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()
    assert ended.value.status == 143
    assert signal.getsignal(signal.SIGTERM) == before
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_command_ends_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    started = tmp_path / "started"
    with CommandSignals() as signals:
        script = f"trap 'exit 5' TERM; touch {started}; while :; do sleep 0.02; done"
        running = asyncio.ensure_future(run_command(["sh", "-c", script], os.environ, signals))
        async with asyncio.timeout(20):
            while not started.exists():
                await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert signals.process is not None
    assert signals.process.returncode == 5


@pytest.mark.parametrize(
    ("command", "status", "text"),
    [
        pytest.param("no-such-command", 127, "no-such-command: command not found", id="a name that is not in PATH"),
        pytest.param("/no/such/file", 127, "/no/such/file: command not found", id="a path that does not exist"),
        pytest.param("/etc/passwd", 126, "/etc/passwd: not an executable file", id="a file that is not executable"),
    ],
)
def test_a_command_that_cannot_run(command: str, status: int, text: str) -> None:
    with pytest.raises(CommandNotRunnable, match=text) as error:
        check_command([command])
    assert error.value.status == status


async def test_a_program_of_another_machine_is_126(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELFrubbish")
    program.chmod(0o755)
    with CommandSignals() as signals, pytest.raises(CommandNotRunnable, match="Exec format error") as error:
        await run_command([str(program)], os.environ, signals)
    assert error.value.status == 126
