"""The programs of the demo end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

_DEMO = """
import asyncio, sys
from examples.bitcoin_operator.demo_programs import Program

async def main():
    program = Program("sleeper", ["sh", "-c", "echo ready; exec sleep 100"], ready="ready", show=print)
    await program.start()
    print(program.pid, flush=True)
    await asyncio.sleep(100)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl(2)")
def test_a_demo_that_is_killed_leaves_no_program() -> None:
    demo = subprocess.Popen([sys.executable, "-c", _DEMO], cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True)
    with demo:
        assert demo.stdout is not None
        pid = int(demo.stdout.readline())
        demo.kill()
    deadline = time.monotonic() + 10
    while running(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            pytest.fail("the program runs without its demo")
        time.sleep(0.02)


def running(pid: int) -> bool:
    """Return whether a process exists that is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
