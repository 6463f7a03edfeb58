"""Indexes of an indexed job as its status writes them: ``0-2,5``. Source: pkg/apis/batch/validation (validateIndexesFormat)."""

from __future__ import annotations

import re

from kubeloop.meta.go_quote import go_quoted

_NUMBER = re.compile(r"\+?[0-9]{1,30}")
_MAX_INT64 = 2**63 - 1

Interval = tuple[int, int]


class BadIndexes(ValueError):
    """Its text is what a client is told."""


def check_indexes(text: str, completions: int) -> int:
    """How many there are. Raises BadIndexes unless the intervals are in order and below ``completions``."""
    last: int | None = None
    total = 0
    for part in text.split(",") if text else ():
        first, end = _interval(part, completions)
        if last is not None and last >= first:
            raise BadIndexes(f"non-increasing order, previous: {last}, current: {first}")
        last = end
        total += end - first + 1
    return total


def overlap(completed: str, failed: str, completions: int) -> int | None:
    """The first index that both hold, None if none. Intervals that cannot be read are passed over."""
    one, other = _readable(completed, completions), _readable(failed, completions)
    while one and other:
        (start, end), (other_start, other_end) = one[-1], other[-1]
        if start <= other_end and other_start <= end:
            return max(start, other_start)
        (one if start <= other_start else other).pop()
    return None


def _readable(text: str, completions: int) -> list[Interval]:
    """The last interval first."""
    found = []
    for part in text.split(",") if text else ():
        try:
            found.append(_interval(part, completions))
        except BadIndexes:
            continue
    return found[::-1]


def _interval(text: str, completions: int) -> Interval:
    limits = text.split("-")
    if len(limits) > 2:
        rule = "violates the requirement that an index interval can have at most two parts separated by '-'"
        raise BadIndexes(f"the fragment {go_quoted(text)} {rule}")
    numbers = [_index(limit, completions) for limit in limits]
    if len(numbers) > 1 and numbers[0] >= numbers[1]:
        raise BadIndexes(f"non-increasing order, previous: {numbers[0]}, current: {numbers[1]}")
    return numbers[0], numbers[-1]


def _index(text: str, completions: int) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > _MAX_INT64:
        raise BadIndexes(f"cannot convert string to integer for index: {go_quoted(text)}")
    if int(text) >= completions:
        raise BadIndexes(f"too large index: {go_quoted(text)}")
    return int(text)
