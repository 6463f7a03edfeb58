"""Findings, and their output: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from rich.console import Console
from rich.text import Text

from kubeloop.meta.columns import folded

#: The state of a finding. ``unknown``: the check could not be made, which is no fault of the cluster.
State = Literal["ok", "warning", "failed", "unknown"]

_STYLES: dict[State, str] = {"ok": "green", "warning": "yellow", "failed": "bold red", "unknown": "magenta"}

_HEADINGS = ("STATE", "CHECK", "WHAT")


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of one check. ``check`` is the group of checks (connection, permission ...), ``subject`` the checked item, ``said`` the
    result in words, and ``fix`` an instruction that repairs it.
    """

    check: str
    subject: str
    state: State
    said: str
    fix: str = ""


def is_well(findings: Iterable[DoctorFinding]) -> bool:
    """Return whether no check failed."""
    return all(finding.state != "failed" for finding in findings)


def as_json(findings: Sequence[DoctorFinding]) -> str:
    return json.dumps({"ok": is_well(findings), "findings": [asdict(finding) for finding in findings]}, indent=2)


def show(findings: Sequence[DoctorFinding], console: Console) -> None:
    """Print each finding: a line with its state and subject, the result and the fix below; then the number of findings by state.

    Lines are folded at the console's width, but never inside a name.
    """
    rows = [(one.state, one.check, one.subject) for one in findings]
    widths = [max(len(row[at]) for row in [_HEADINGS, *rows]) for at in range(2)]
    indent = " " * (widths[0] + 2)

    def head(state: str, check: str, subject: str, style: str) -> Text:
        return Text.assemble((f"{state:<{widths[0]}}  ", style), (f"{check:<{widths[1]}}  ", style and "dim"), subject)

    _print(console, head(*_HEADINGS, "bold"))
    for one, row in zip(findings, rows, strict=True):
        _print(console, head(*row, _STYLES[one.state]))
        for line in folded(one.said, console.width, indent):
            _print(console, Text(line))
        if one.fix and one.state != "ok":
            for line in folded(f"-> {one.fix}", console.width, indent):
                _print(console, Text(line, style="bold"))
    counts = {state: sum(one.state == state for one in findings) for state in _STYLES}
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    _print(console, Text(said, style="green" if is_well(findings) else "bold red"))


def _print(console: Console, line: Text) -> None:
    # A longer word is one name, which a terminal may continue on the next line.
    console.print(line, soft_wrap=True)
