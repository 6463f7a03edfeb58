"""A long run of clients of the proxy, client-go's informers among them, under random rules and faults.

python -m tests.soak.proxy [--rounds 200] [--steps 80] [--seed 1] [--cache always] [--real KUBECONFIG]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.foreign.building import is_installed
from tests.soak.memory import Memory
from tests.soak.proxy.run import ProxyRun, Settings, run


def _settings() -> Settings:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.proxy", description="clients of the proxy under random rules and faults")
    parser.add_argument("--rounds", type=int, default=200, help="number of comparisons (default: 200)")
    parser.add_argument("--steps", type=int, default=80, help="writes and faults before each comparison (default: 80)")
    parser.add_argument("--seed", type=int, default=1, help="of rules, writes and faults (default: 1)")
    parser.add_argument(
        "--cache", choices=["always", "never", "mixed"], default="mixed", help="caching mode of the proxy (default: drawn at each start)"
    )
    parser.add_argument("--real", type=Path, metavar="KUBECONFIG", help="a real server instead of the embedded one; its network fails")
    found = parser.parse_args()
    if not is_installed("go"):
        print("go is not installed: client-go's informers are left out")
    return Settings(found.rounds, found.steps, found.seed, is_installed("go"), found.cache, found.real)


def main() -> int:
    """Run, print progress and verdict, and return the exit status."""
    settings, memory, began = _settings(), Memory(), time.monotonic()
    logging.disable(logging.CRITICAL)  # thousands of faults are reported, as they must be; here they are counted

    def report(played: ProxyRun, number: int) -> None:
        memory.look(number / settings.rounds)
        steps = ", ".join(f"{name} {count:,}" for name, count in played.steps.most_common())
        print(f"{time.monotonic() - began:5.0f} s  {number} of {settings.rounds} rounds, {memory.now:.0f} MiB: {steps}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        wrong = asyncio.run(run(settings, Path(folder), report)) + memory.verdict()
    for line in wrong[:50]:
        print(f"VIOLATION {line}")
    print(f"verdict: {len(wrong)} violations (seed {settings.seed})" if wrong else "verdict: all stores were right each time")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
