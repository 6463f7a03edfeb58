"""The embedded API server for a long time, with progress, an account, and exit status 1 if anything was wrong.

python -m tests.soak.server [--watchers 1000] [--clients 200] [--minutes 10] [--rate 200] [--overload 60] [--greedy 200] [--seed 1]
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.soak.server.cluster import Started, started
from tests.soak.server.settings import Settings, arguments

#: The memory at the end, as a multiple of that after the first minute.
MEMORY = 1.1
#: The p99 of a client that behaves well under overload, as a multiple of the one when nothing else happens.
SLOWDOWN = 5.0
_IDLE = 15.0
_LOOK = 10.0


def start(module: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"tests.soak.server.{module}", json.dumps(options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def account(process: subprocess.Popen[str]) -> Any:
    out, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"a process of the load failed with {process.returncode}")
    return json.loads(out)


def p99(took: list[float]) -> float:
    return took[min(len(took) - 1, int(len(took) * 0.99))] if took else float("inf")


def soak(settings: Settings, server: Started) -> list[str]:
    where = {"port": server.target.port, "authority": server.target.authority}
    of_bystander = {**where, "token": "token-bystander", "namespace": "soak-0"}
    wrong: list[str] = []
    idle = account(start("bystander", **of_bystander, seconds=_IDLE))
    print(f"idle: p99 {p99(idle['took']) * 1000:.1f} ms of {len(idle['took'])} requests, {server.resident():.0f} MiB", flush=True)

    seconds = settings.minutes * 60
    load = start("load", **where, settings=dataclasses.asdict(settings), seconds=seconds)
    first, after_first_minute = server.resident(), 0.0
    began = time.monotonic()
    while load.poll() is None:
        time.sleep(min(_LOOK, max(0.1, seconds - (time.monotonic() - began))) if time.monotonic() - began < seconds else 0.5)
        gone = time.monotonic() - began
        if not after_first_minute and gone >= min(60.0, seconds / 3):
            after_first_minute = server.resident()
        print(f"{gone:5.0f} s  {server.resident():.0f} MiB, audit log {server.audit.stat().st_size >> 20} MiB", flush=True)
    steady = account(load)
    end = server.resident()
    print(f"steady: {json.dumps(steady['statuses'])}, {steady['events']:,} events in {steady['watches']:,} watches")
    print(f"resident memory: {first:.0f} MiB at the start, {after_first_minute:.0f} after the first minute, {end:.0f} at the end")
    wrong += steady["wrong"] + idle["wrong"]
    if end > MEMORY * after_first_minute:
        wrong.append(f"memory grew {end / after_first_minute:.2f} times after the first minute; {MEMORY} are allowed")

    if settings.overload:
        greedy = start("greedy", **where, token="token-greedy", namespace="soak-1", clients=settings.greedy, seconds=settings.overload + 4)
        time.sleep(2)
        busy = account(start("bystander", **of_bystander, seconds=settings.overload))
        answered = account(greedy)
        slower = p99(busy["took"]) / p99(idle["took"])
        print(
            f"overload: p99 {p99(busy['took']) * 1000:.1f} ms of {len(busy['took'])} requests, {slower:.1f} times that when idle;"
            f" the greedy were answered {json.dumps(answered)}; {server.resident():.0f} MiB"
        )
        wrong += busy["wrong"]
        if slower > SLOWDOWN:
            wrong.append(f"a client that behaves well was {slower:.1f} times as slow under overload; {SLOWDOWN} are allowed")
        if set(answered) - {"200", "429"}:
            wrong.append(f"greedy clients were answered otherwise than 200 and 429: {answered}")
    if "Traceback" in server.log.read_text():
        wrong.append(f"the server's log has a traceback: {server.log.read_text()[-3000:]}")
    return wrong


def main() -> int:
    settings = arguments()
    with tempfile.TemporaryDirectory(prefix="kubeloop-soak-") as folder, started(settings, Path(folder)) as server:
        wrong = soak(settings, server)
    for line in wrong[:50]:
        print(f"VIOLATION {line}")
    print("verdict:", f"{len(wrong)} violations" if wrong else "each answer was the expected one, and nothing grew")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
