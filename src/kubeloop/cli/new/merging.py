"""A three-way merge of text by lines: the base is what kubeloop wrote, one side is the user's, the other what kubeloop writes now."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple


class _Change(NamedTuple):
    """Lines ``start`` to ``end`` of the base become ``lines``."""

    start: int
    end: int
    lines: list[str]


def merge_text(base: str, mine: str, theirs: str) -> str | None:
    """Return ``mine`` with the changes from ``base`` to ``theirs``; None if both changed the same lines differently.

    If both insert lines at one place, the result has both insertions, those of ``mine`` first. An insertion that ``mine`` has already is
    not repeated.
    """
    lines = base.splitlines(keepends=True)
    left, right = _changes(lines, mine), _changes(lines, theirs)
    merged: list[str] = []
    at = 0
    while left or right:
        if left and right and left[0] == right[0]:
            change = left.pop(0)
            right.pop(0)
        elif left and right and _is_insertion(left[0]) and _is_insertion(right[0]) and left[0].start == right[0].start:
            first, second = left.pop(0), right.pop(0)
            change = _Change(first.start, first.end, first.lines if _contains(first.lines, second.lines) else first.lines + second.lines)
        elif left and right and _overlap(left[0], right[0]):
            return None
        else:
            change = left.pop(0) if not right or (left and left[0].start <= right[0].start) else right.pop(0)
        merged += lines[at : change.start] + change.lines
        at = change.end
    return "".join(merged + lines[at:])


def _changes(base: Sequence[str], text: str) -> list[_Change]:
    lines = text.splitlines(keepends=True)
    opcodes = SequenceMatcher(None, base, lines, autojunk=False).get_opcodes()
    return [_Change(start, end, lines[first:last]) for tag, start, end, first, last in opcodes if tag != "equal"]


def _is_insertion(change: _Change) -> bool:
    return change.start == change.end


def _contains(lines: list[str], part: list[str]) -> bool:
    """Return whether ``part`` stands in ``lines``, one line after the other."""
    return any(lines[at : at + len(part)] == part for at in range(len(lines) - len(part) + 1))


def _overlap(one: _Change, other: _Change) -> bool:
    """Return whether two changes touch the same lines; an insertion at the edge of a change belongs to it."""
    return one.start <= other.end and other.start <= one.end
