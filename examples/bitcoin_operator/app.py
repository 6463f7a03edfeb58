"""The controllers and webhooks that the program runs: for ``__main__``, tests and the commands of kubeloop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from examples.bitcoin_operator.controller import BitcoinNetworkController
from examples.bitcoin_operator.rpc import RpcClient
from kubeloop.controller import ControllerBase

if TYPE_CHECKING:
    from kubeloop.controller.webhooks import Webhooks


def controllers(rpc: RpcClient | None = None) -> list[ControllerBase[Any]]:
    """Return new controllers: a controller object serves one manager. ``rpc``: client for the daemons; None: one with default options."""
    return [BitcoinNetworkController(rpc)]


def program() -> list[ControllerBase[Any] | Webhooks]:
    """Return the controllers and the webhooks, for ``kubeloop run examples.bitcoin_operator.app:program``."""
    from examples.bitcoin_operator.webhooks import hooks

    return [*controllers(), hooks]
