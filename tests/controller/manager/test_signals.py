"""SIGTERM and SIGINT: the first stops gracefully, the second at once; afterwards the handlers from before are back."""

import signal
import subprocess
import sys

import pytest

_PROGRAM = """
import asyncio, signal
from kubeloop.controller.manager.group import stop_on_signals

async def main():
    stop = asyncio.Event()
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals(stop.set):
        print("ready", flush=True)
        await stop.wait()
        print("stopping", flush=True)
        if {hang}:
            await asyncio.Event().wait()
    assert signal.getsignal(signal.SIGTERM) is before
    print("ended", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("hang", "status", "last"),
    [
        pytest.param(False, 0, "ended", id="the first signal stops gracefully"),
        pytest.param(True, None, "stopping", id="the second signal ends the process at once"),
    ],
)
def test_signal(number: signal.Signals, hang: bool, status: int | None, last: str) -> None:
    command = [sys.executable, "-c", _PROGRAM.format(hang=hang)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.strip())
            if line.strip() == "ready" or (hang and line.strip() == "stopping"):
                process.send_signal(number)
        assert process.wait(10) == (128 + number if status is None else status)
    assert lines[-1] == last
