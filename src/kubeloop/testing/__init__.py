"""For tests of what is built on kubeloop: a cluster on this machine, and one in this event loop whose faults a test commands."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubeloop.testing.calls import Call, on
    from kubeloop.testing.faults import Faults
    from kubeloop.testing.in_loop import InLoopServer
    from kubeloop.testing.in_process import InProcessServer
    from kubeloop.testing.local_cluster import LocalCluster

_HOMES = {
    "LocalCluster": "local_cluster",
    "InLoopServer": "in_loop",
    "InProcessServer": "in_process",
    "Faults": "faults",
    "Call": "calls",
    "on": "calls",
}

__all__ = ["Call", "Faults", "InLoopServer", "InProcessServer", "LocalCluster", "on"]


if not TYPE_CHECKING:  # a type checker would let any misspelt name pass as Any

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'kubeloop.testing' has no attribute {name!r}")
        try:
            module = importlib.import_module(f"kubeloop.testing.{home}")
        except ModuleNotFoundError as error:
            from kubeloop.testing.extras import not_installed

            raise not_installed(error) from error
        return getattr(module, name)
