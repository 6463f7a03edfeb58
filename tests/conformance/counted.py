"""Which scenarios count, and which of their steps are known to differ: the figures of docs/conformance.md and of the gate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.conformance import recordings
from tests.conformance.sweep.known import table
from tests.upstream.results import section

HERE = Path(__file__).parent
DOCUMENT = HERE.parent.parent / "docs" / "conformance.md"

#: Parts of exact steps, of all scenarios together and of each.
LEAST_IN_ALL = 0.98
LEAST_OF_EACH = 0.90

#: Recorded steps that show each thing that the server is for.
LEAST_STEPS = 25

Differences = dict[str, dict[int, str]]


@dataclass(frozen=True, slots=True)
class Counted:
    """A scenario: how many steps it has, and why which of them differ."""

    name: str
    steps: int
    differing: dict[int, str]
    requests: dict[int, str]

    @property
    def exact(self) -> int:
        return self.steps - len(self.differing)


def known_differences() -> Differences:
    """By scenario and number of the step: the reason."""
    found: Differences = yaml.load((HERE / "differences.yaml").read_text(), yaml.CSafeLoader) or {}
    return found


def coverage() -> dict[str, list[str]]:
    """By what the server is for: the scenarios that show it."""
    found: dict[str, list[str]] = yaml.load((HERE / "coverage.yaml").read_text(), yaml.CSafeLoader)
    return found


def counted() -> list[Counted]:
    """By name."""
    known, found = known_differences(), []
    for file in recordings.files("plain"):
        steps = recordings.load(file)["steps"]
        requests = {step["step"]: f"{step['request']['method']} {step['request']['path']}" for step in steps}
        found.append(Counted(recordings.name_of(file), len(steps), known.get(recordings.name_of(file), {}), requests))
    return found


def document() -> str:
    """The text of docs/conformance.md."""
    rows = counted()
    steps, exact = sum(row.steps for row in rows), sum(row.exact for row in rows)
    lines = [
        "# Conformance",
        "",
        "What a real Kubernetes 1.36.3 API server answered to scripted requests, and whether the embedded server answers the same: status,",
        "headers and every leaf of the body. `make conformance` prints the score of all scenarios. `make test` fails when a step differs",
        "that is not listed here, or when a listed one no longer does. Made by `python -m tests.conformance --document`.",
        "",
        f"**{exact} of {steps} steps are equal ({100 * exact / steps:.1f} %)**, in {len(rows)} scenarios.",
        "Descriptions of Table columns and in OpenAPI documents are left out of the comparison: this server's are its own.",
        "",
        "## Steps that differ",
        "",
        "| scenario | step | request | reason |",
        "|---|---|---|---|",
    ]
    for row in rows:
        lines += [f"| {row.name} | {step} | `{row.requests[step]}` | {why} |" for step, why in sorted(row.differing.items())]
    lines += ["", "## Coverage", "", "| | steps | scenarios |", "|---|---|---|"]
    by_name = {row.name: row.steps for row in rows}
    lines += [f"| {what} | {sum(by_name[name] for name in names)} | {', '.join(names)} |" for what, names in coverage().items()]
    lines += ["", "## Scenarios", "", "| scenario | equal steps |", "|---|---|"]
    lines += [f"| {row.name} | {row.exact} of {row.steps} |" for row in rows]
    return "\n".join([*lines, "", *table(), *section()]) + "\n"
