"""What was found, one thing each, and how it is shown: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: ``unknown``: it could not be found out, which by itself is no fault of the cluster.
State = Literal["ok", "warning", "failed", "unknown"]

_STYLES: dict[State, str] = {"ok": "green", "warning": "yellow", "failed": "bold red", "unknown": "magenta"}


@dataclass(frozen=True, slots=True)
class Finding:
    """``check`` is the group (connection, permission ...), ``subject`` what was looked at, ``said`` what is so, ``fix`` the way out."""

    check: str
    subject: str
    state: State
    said: str
    fix: str = ""


def is_well(findings: Iterable[Finding]) -> bool:
    """Whether nothing failed."""
    return all(finding.state != "failed" for finding in findings)


def as_json(findings: Sequence[Finding]) -> str:
    return json.dumps({"ok": is_well(findings), "findings": [asdict(finding) for finding in findings]}, indent=2)


def show(findings: Sequence[Finding], console: Console) -> None:
    """A table, then what to do, then the sum."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("CHECK", "WHAT", "STATE", "FOUND"):
        table.add_column(column, overflow="fold")
    for one in findings:
        table.add_row(Text(one.check), Text(one.subject), Text(one.state, style=_STYLES[one.state]), Text(one.said))
    console.print(table)
    for one in findings:
        if one.fix and one.state != "ok":
            console.print(Text.assemble((f"{one.subject}: ", "bold"), one.fix), soft_wrap=True)
    counts = {state: sum(one.state == state for one in findings) for state in _STYLES}
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    console.print(Text(said, style="green" if is_well(findings) else "bold red"))
