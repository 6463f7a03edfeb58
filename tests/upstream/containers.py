"""Which conformance specs need containers that run, by the table in containers.yaml."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml

TABLE = Path(__file__).with_name("containers.yaml")


@cache
def needs() -> dict[str, list[str]]:
    """Return regular expressions of the names of specs, by what these specs need of a node."""
    table: dict[str, list[str]] = yaml.safe_load(TABLE.read_text())
    return table


def patterns() -> list[str]:
    """Return all regular expressions."""
    return [pattern for group in needs().values() for pattern in group]


def need_of(spec: str) -> str | None:
    """Return what a spec needs of a node with containers, such as ``files in containers``; None if simulated nodes suffice."""
    return next((need for need, group in needs().items() if any(re.search(pattern, spec) for pattern in group)), None)
