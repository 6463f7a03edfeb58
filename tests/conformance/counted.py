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

#: Recorded scenarios of each family of controllers, and the part of their steps that must be equal in the long form.
LEAST_SCENARIOS = 25
LEAST_OF_FAMILY = 0.95

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


def known_controller_differences() -> Differences:
    """By scenario with controllers and number of the step: the reason."""
    found: Differences = yaml.load((HERE / "controller_differences.yaml").read_text(), yaml.CSafeLoader) or {}
    return found


def families() -> dict[str, list[str]]:
    """By family of controllers: the recorded scenarios."""
    found: dict[str, list[str]] = yaml.load((HERE / "families.yaml").read_text(), yaml.CSafeLoader)
    return found


def set_of(family: str) -> str:
    """Return the set of the scenarios of a family."""
    return "with-scheduler" if family == "scheduling" else "with-controllers"


def counted_by_family() -> dict[str, list[Counted]]:
    """By family of controllers: its scenarios in their order."""
    known = known_controller_differences()
    return {family: [_count(recordings.path_of(set_of(family), name), known) for name in names] for family, names in families().items()}


def counted() -> list[Counted]:
    """By name."""
    known = known_differences()
    return [_count(file, known) for file in recordings.files("plain")]


def _count(file: Path, known: Differences) -> Counted:
    steps = recordings.load(file)["steps"]
    requests = {step["step"]: f"{step['request']['method']} {step['request']['path']}" for step in steps}
    return Counted(recordings.name_of(file), len(steps), known.get(recordings.name_of(file), {}), requests)


def _controllers() -> list[str]:
    """Return the section of the page about recordings with controllers."""
    lines = [
        "## Controllers",
        "",
        "What clients see of a cluster while kube-controller-manager of Kubernetes 1.36.3 works (for scheduling also kube-scheduler), and",
        "whether they see the same with kubeloop's controllers. `python -m tests.conformance --set with-controllers` replays the set.",
        f"The long form of the tests fails when fewer than {100 * LEAST_OF_FAMILY:.0f} % of a family's steps are equal: a few steps show a",
        "state that passes, and so differ from run to run.",
        "",
        "| controllers | scenarios | steps | equal steps |",
        "|---|---|---|---|",
    ]
    by_family = counted_by_family()
    for family, rows in by_family.items():
        steps, exact = sum(row.steps for row in rows), sum(row.exact for row in rows)
        lines.append(f"| {family.replace('_', ' ')} | {len(rows)} | {steps} | {exact} ({100 * exact / steps:.1f} %) |")
    lines += ["", "| scenario | step | request | reason for the difference |", "|---|---|---|---|"]
    for row in (row for rows in by_family.values() for row in rows):
        lines += [f"| {row.name} | {step} | `{row.requests[step]}` | {why} |" for step, why in sorted(row.differing.items())]
    return [*lines, ""]


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
    return "\n".join([*lines, "", *_controllers(), *table(), *section()]) + "\n"
