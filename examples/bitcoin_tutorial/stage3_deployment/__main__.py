"""``python -m examples.bitcoin_tutorial.stage3_deployment``: run the controller until SIGINT or SIGTERM."""

from __future__ import annotations

from examples.bitcoin_tutorial.stage3_deployment.controller import NetworkController
from examples.bitcoin_tutorial.stage3_deployment.program import run

if __name__ == "__main__":
    run(NetworkController())
