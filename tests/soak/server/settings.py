"""What a run is to be."""

from __future__ import annotations

import argparse
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """``rate``: requests per second of all steady clients together. ``overload``: seconds in which ``greedy`` clients never pause."""

    watchers: int
    clients: int
    minutes: float
    rate: float
    overload: float
    greedy: int
    namespaces: int
    seed: int


def arguments() -> Settings:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.server", description="the embedded API server with many watchers and clients, then with too many"
    )
    parser.add_argument("--watchers", type=int, default=1000, help="watches that are open all the time (default: 1,000)")
    parser.add_argument("--clients", type=int, default=200, help="steady clients, each with its own user (default: 200)")
    parser.add_argument("--minutes", type=float, default=10.0, help="of steady load (default: 10)")
    parser.add_argument("--rate", type=float, default=200.0, help="requests per second of all steady clients together (default: 200)")
    parser.add_argument("--overload", type=float, default=60.0, help="seconds of overload at the end (default: 60)")
    parser.add_argument("--greedy", type=int, default=200, help="clients that ask without a pause then (default: 200)")
    parser.add_argument("--namespaces", type=int, default=20, help="among which all is spread (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help="of what clients do (default: 1)")
    found = parser.parse_args()
    return Settings(**vars(found))
