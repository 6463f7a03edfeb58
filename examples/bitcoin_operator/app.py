"""The controllers that the program runs: for ``__main__``, tests and the commands of kubeloop."""

from __future__ import annotations

from typing import Any

from examples.bitcoin_operator.controller import BitcoinNetworkController
from kubeloop.controller import ControllerBase


def controllers() -> list[ControllerBase[Any]]:
    """Return new controllers: a controller object serves one manager."""
    return [BitcoinNetworkController()]
