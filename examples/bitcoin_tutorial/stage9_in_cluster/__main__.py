"""``python -m examples.bitcoin_tutorial.stage9_in_cluster``: run the controllers, in a pod or outside of the cluster."""

from __future__ import annotations

from examples.bitcoin_tutorial.stage3_deployment.program import run
from examples.bitcoin_tutorial.stage9_in_cluster.app import controllers

if __name__ == "__main__":
    run(*controllers())
