"""``python -m examples.bitcoin_tutorial.stage7_events``: run the controller until SIGINT or SIGTERM."""

from __future__ import annotations

from examples.bitcoin_tutorial.stage3_deployment.program import run
from examples.bitcoin_tutorial.stage7_events.controller import NetworkController

if __name__ == "__main__":
    run(NetworkController())
