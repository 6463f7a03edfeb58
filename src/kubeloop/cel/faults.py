"""Errors of expressions, from compiling and from evaluating.

The messages are those of cel-go, which clients of Kubernetes see.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass


class CompileError(ValueError):
    """The expression does not parse, or its types do not fit. The message names each position with the line and a mark below it."""


class InstantiationError(CompileError):
    """The expression is well-typed but always fails. ``result`` is the kind of value that it would return."""

    def __init__(self, text: str, result: str) -> None:
        super().__init__(text)
        self.result = result


class EvalError(ValueError):
    """The evaluation of an expression failed: ``no such key: a``, ``division by zero``."""


class CostExceeded(EvalError):
    """The evaluation was stopped because it exceeded its cost limit."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class TooDeep(Exception):
    """The expression nests more than 250 levels."""


@dataclass(frozen=True, slots=True)
class Issue:
    """One error in an expression; ``position`` is its offset in the source in code points."""

    position: int
    text: str


_MOST_SHOWN = 100


def render(source: str, issues: list[Issue]) -> str:
    """Render all issues by position, each with its line and a mark below it, as cel-go prints them."""
    lines = source.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    shown: list[tuple[int, int, str]] = []
    for issue in issues:
        number = max(index for index, start in enumerate(starts[:-1]) if start <= max(issue.position, 0))
        shown.append((number, max(issue.position, 0) - starts[number], issue.text))
    shown.sort(key=lambda fault: fault[:2])
    out = [_one(lines[line], line, column, text) for line, column, text in shown[:_MOST_SHOWN]]
    if len(shown) > _MOST_SHOWN:
        out.append(f"{len(shown) - _MOST_SHOWN} more errors were truncated")
    return "\n".join(out)


def _one(snippet: str, line: int, column: int, text: str) -> str:
    snippet = snippet.replace("\t", " ")
    dots = "".join("．" if unicodedata.east_asian_width(one) in "WF" else "." for one in snippet[:column]).ljust(column, ".")
    mark = "＾" if column < len(snippet) and unicodedata.east_asian_width(snippet[column]) in "WF" else "^"
    return f"ERROR: <input>:{line + 1}:{column + 1}: {text}\n | {snippet}\n | {dots}{mark}"
