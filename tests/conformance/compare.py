"""Compares a recording with the expected one, step by step and leaf by leaf."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.conformance.trees import walk

Leaf = tuple[str | int, ...]

#: Paths of OpenAPI documents.
_OPENAPI = re.compile(r"^/openapi/")


class Difference(NamedTuple):
    place: str
    expected: str
    actual: str

    def __str__(self) -> str:
        if not self.actual:
            return f"missing   {self.place}: expected {self.expected}"
        if not self.expected:
            return f"extra     {self.place}: {self.actual}"
        return f"different {self.place}: expected {self.expected}, got {self.actual}"


@dataclass(slots=True)
class Score:
    """Counts of one scenario, or of many together; ``differences`` by step."""

    scenario: str
    steps: int = 0
    exact: int = 0
    right_status: int = 0
    leaves: int = 0
    matching: int = 0
    differences: dict[str, list[Difference]] = field(default_factory=dict)

    def add(self, other: Score) -> None:
        self.steps += other.steps
        self.exact += other.exact
        self.right_status += other.right_status
        self.leaves += other.leaves
        self.matching += other.matching


def compare(expected: dict[str, Any], actual: dict[str, Any], ignore: tuple[str, ...] = ()) -> Score:
    """``ignore`` leaves out every path that holds one of these keys."""
    score = Score(expected["scenario"])
    by_number = {step["step"]: step for step in actual.get("steps", [])}
    for step in expected["steps"]:
        other = by_number.get(step["step"])
        want, have = _leaves(step, ignore), _leaves(other, ignore) if other else {}
        keys = sorted(want.keys() | have.keys(), key=lambda key: [str(part) for part in key])
        wrong = [key for key in keys if (key in want) != (key in have) or want.get(key) != have.get(key)]
        score.steps += 1
        score.exact += not wrong
        score.right_status += other is not None and other["status"] == step["status"]
        score.leaves += len(keys)
        score.matching += len(keys) - len(wrong)
        if wrong:
            name = f"step {step['step']} {step['request']['method']} {step['request']['path']}"
            score.differences[name] = [_difference(key, want, have) for key in wrong]
    order = {name: index for index, name in enumerate(actual.get("rvOrder", []))}
    pairs = list(itertools.pairwise(expected["rvOrder"]))
    bad = [(a, b) for a, b in pairs if a in order and b in order and order[a] >= order[b]]
    if bad:
        score.differences["order of resourceVersions"] = [Difference(f"{a} before {b}", "so", "the other way round") for a, b in bad]
    score.leaves += len(pairs)
    score.matching += len(pairs) - len(bad)
    return score


def _leaves(step: dict[str, Any], ignore: tuple[str, ...]) -> dict[Leaf, Any]:
    body = without_prose(step["body"], _OPENAPI.search(step["request"]["path"]) is not None)
    parts = (leaf for name, part in (("headers", step["headers"]), ("body", body)) for leaf in walk(part, (name,)))
    return {("status",): step["status"], **{path: value for path, value in parts if not any(name in path for name in ignore)}}


def without_prose(body: Any, openapi: bool) -> Any:
    """A body without upstream's prose, which is not ours to copy: descriptions of a Table's columns, and all of an OpenAPI document."""
    if isinstance(body, list):
        return [without_prose(item, openapi) for item in body]
    if not isinstance(body, dict):
        return body
    return {
        key: without_prose(value, openapi or key == "columnDefinitions")
        for key, value in body.items()
        if not (openapi and key == "description" and isinstance(value, str))
    }


def _difference(key: Leaf, want: dict[Leaf, Any], have: dict[Leaf, Any]) -> Difference:
    def show(side: dict[Leaf, Any]) -> str:
        return json.dumps(side[key], ensure_ascii=False)[:300] if key in side else ""

    return Difference(".".join(str(part) for part in key), show(want), show(have))
