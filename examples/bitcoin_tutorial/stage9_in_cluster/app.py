"""The controllers of the program, for ``__main__`` and for ``kubeloop generate rbac``."""

from __future__ import annotations

from typing import Any

from examples.bitcoin_tutorial.stage7_events.controller import NetworkController
from kubeloop.controller import ControllerBase


def controllers() -> list[ControllerBase[Any]]:
    """Return new controllers."""
    return [NetworkController()]
