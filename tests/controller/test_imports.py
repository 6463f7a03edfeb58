"""What importing controllers costs: nothing is loaded that a program may not use."""

from __future__ import annotations

import subprocess
import sys

UNUSED = (
    "aiohttp",
    "cryptography",
    "prometheus_client",
    "kubeloop.serving",
    "kubeloop.apiserver",
    "kubeloop.controller.election",
    "kubeloop.controller.sharding",
    "kubeloop.controller.webhooks",
)


def test_importing_controllers_loads_no_election_no_sharding_no_metrics_and_no_server() -> None:
    code = "import sys, kubeloop.controller; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "kubeloop.controller.manager.manager" in loaded
    assert [name for name in loaded if name in UNUSED or name.startswith(tuple(f"{one}." for one in UNUSED))] == []
