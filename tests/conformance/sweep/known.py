"""Steps of the sweep that are known to differ, each with its reason, and the score by resource that follows from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.conformance.compare import Difference, compare
from tests.conformance.recordings import files, load
from tests.conformance.sweep.recording import replay
from tests.conformance.wire import Server

FILE = Path(__file__).with_name("differences.yaml")

#: Part of all steps that are equal: the measure of requests that no scenario was written for.
LEAST_EQUAL = 0.97

#: By scenario, by reason: numbers of steps; 0 stands for the order of versions.
Known = dict[str, dict[str, list[int]]]

_HEAD = """\
# Steps of the sweep that the embedded server answers otherwise than the real one, by recording and reason.
# The test fails when another step differs, and when one of these no longer does.
# `python -m tests.conformance.sweep --update` takes out what no longer differs, and adds the rest as "not yet explained".
"""
UNEXPLAINED = "not yet explained"


def known_differences() -> Known:
    found: Known = yaml.load(FILE.read_text(), yaml.CSafeLoader) or {}
    return found


def numbers(differences: dict[str, list[Difference]]) -> dict[int, list[Difference]]:
    """Differences by number of the step."""
    found = {}
    for name, differing in differences.items():
        match = re.match(r"step (\d+) ", name)
        found[int(match[1]) if match else 0] = differing
    return found


@dataclass(frozen=True, slots=True)
class Judged:
    """What a replay shows: differences that are not known, known ones that are none, and waits and steps that failed."""

    unknown: dict[int, list[Difference]]
    fixed: set[int]
    surprises: list[str]


def judge(server: Server, file: Path) -> Judged:
    """Replay one recording."""
    recording: dict[str, Any] = load(file)
    actual, surprises = replay(server, recording)
    differing = numbers(compare(recording, actual).differences)
    known = {step for steps in known_differences().get(recording["scenario"], {}).values() for step in steps}
    return Judged({step: found for step, found in differing.items() if step not in known}, known - differing.keys(), surprises)


def update(differing: dict[str, set[int]]) -> None:
    """Rewrite the file for the recordings that were replayed: ``differing`` has their steps that differ."""
    known = known_differences()
    for name, steps in differing.items():
        kept = {reason: sorted(steps & set(numbers)) for reason, numbers in known.get(name, {}).items()}
        left = steps - {step for numbers in kept.values() for step in numbers}
        if left:
            kept[UNEXPLAINED] = sorted(left | set(kept.get(UNEXPLAINED, ())))
        known[name] = {reason: numbers for reason, numbers in kept.items() if numbers}
    made = {name: known[name] for name in sorted(known) if known[name]}
    FILE.write_text(_HEAD + yaml.safe_dump(made, default_flow_style=None, width=140, sort_keys=False))


def table() -> list[str]:
    """Lines of docs/conformance.md."""
    known, rows, reasons = known_differences(), [], []
    steps = exact = 0
    for file in files("sweep"):
        recording = load(file)
        name, count = recording["scenario"], len(recording["steps"])
        differing = {step for numbers in known.get(name, {}).values() for step in numbers} - {0}
        steps, exact = steps + count, exact + count - len(differing)
        rows.append(f"| {name} | {count - len(differing)} of {count} | {100 * (count - len(differing)) / count:.1f} % |")
        reasons += [f"| {name} | {len(numbers)} | {reason} |" for reason, numbers in known.get(name, {}).items()]
    return [
        "## Sweep over all kinds",
        "",
        "Generated requests to every resource that a default server serves: smallest, fullest and broken objects, each field alone, two",
        "errors at once, updates, patches of four kinds, subresources, deletions. `python -m tests.conformance.sweep` replays them.",
        "",
        f"**{exact} of {steps} steps are equal ({100 * exact / steps:.1f} %)**, of {len(rows)} resources.",
        "",
        "| resource | steps that differ | reason |",
        "|---|---|---|",
        *reasons,
        "",
        "| resource | equal steps | |",
        "|---|---|---|",
        *rows,
    ]


def share() -> float:
    """Part of all steps that are equal, as far as is known."""
    known = known_differences()
    steps = sum(len(load(file)["steps"]) for file in files("sweep"))
    return 1 - sum(len(set(numbers) - {0}) for reasons in known.values() for numbers in reasons.values()) / steps
