"""Completion indexes of Jobs: ranges in the format of ``status.completedIndexes``, indexes of pods, and indexes without a pod.

Source: Kubernetes pkg/controller/job/indexed_job_utils.go.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kubeloop.api.core.v1 import Pod
from kubeloop.meta.strconv import decimal

INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"


@dataclass(frozen=True, slots=True)
class IndexRanges:
    """A set of indexes, stored as ascending ranges that neither overlap nor touch. ``str`` returns the format of a Job's status.

    Example:
        >>> str(IndexRanges.parse("0-2,5", 10).add([3, 6, 9]))
        '0-3,5,6,9'
    """

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str, completions: int) -> IndexRanges:
        """Parse a text such as ``0-2,5``; indexes from ``completions`` on and malformed parts are left out."""
        ranges: list[tuple[int, int]] = []
        for part in text.split(",") if text else ():
            first_text, *more = part.split("-")
            first = decimal(first_text)
            last = decimal(more[0]) if more else first
            if first is None:
                continue
            if first >= completions:
                break
            if last is None:
                continue
            ranges.append((first, min(last, completions - 1)))
        return cls().merge(cls(tuple(ranges)))

    def add(self, indexes: Iterable[int]) -> IndexRanges:
        """Return the union of this set and single indexes."""
        return self.merge(IndexRanges(tuple((index, index) for index in sorted(indexes))))

    def merge(self, other: IndexRanges) -> IndexRanges:
        """Return the union of this set and another one."""
        result: list[tuple[int, int]] = []
        for first, last in sorted((*self.ranges, *other.ranges)):
            if result and first <= result[-1][1] + 1:
                result[-1] = (result[-1][0], max(result[-1][1], last))
            else:
                result.append((first, last))
        return IndexRanges(tuple(result))

    def overlap(self, other: IndexRanges) -> int:
        """Return the number of indexes that are in this set and in another one."""
        total = mine = theirs = 0
        while mine < len(self.ranges) and theirs < len(other.ranges):
            (first, last), (other_first, other_last) = self.ranges[mine], other.ranges[theirs]
            total += max(0, min(last, other_last) - max(first, other_first) + 1)
            mine, theirs = mine + (last <= other_last), theirs + (other_last <= last)
        return total

    def __contains__(self, index: int) -> bool:
        at = bisect.bisect_right(self.ranges, index, key=lambda interval: interval[0]) - 1
        return at >= 0 and index <= self.ranges[at][1]

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges:
            yield from range(first, last + 1)

    def __str__(self) -> str:
        parts = []
        for first, last in self.ranges:
            parts.append(str(first) if first == last else f"{first}{',' if last == first + 1 else '-'}{last}")
        return ",".join(parts)


def completion_index(annotations: Mapping[str, str]) -> int | None:
    """Return the completion index in the annotations of a pod, or None if they have no valid one."""
    index = decimal(annotations.get(INDEX, ""))
    return index if index is not None and index >= 0 else None


def indexes_of(pods: Iterable[Pod]) -> set[int]:
    """Return the completion indexes of pods."""
    return {index for pod in pods if (index := completion_index(pod.metadata.annotations)) is not None}


def pending_indexes(count: int, completions: int, taken: IndexRanges) -> list[int]:
    """Return the first ``count`` indexes below ``completions`` that are not taken, at a cost that does not depend on ``completions``."""
    result: list[int] = []
    candidate = 0
    for first, last in (*taken.ranges, (completions, completions)):
        end = min(first, completions, candidate + count - len(result))
        result.extend(range(candidate, end))
        candidate = max(candidate, last + 1)
        if len(result) >= count:
            break
    return result


def failure_count(pod: Pod) -> int:
    """Return how many pods of the same index failed before a pod, without failures that the pod failure policy ignored."""
    return _count(pod, FAILURES)


def ignored_failure_count(pod: Pod) -> int:
    """Return how many pods of the same index failed before a pod and were ignored by the pod failure policy."""
    return _count(pod, IGNORED_FAILURES)


def _count(pod: Pod, annotation: str) -> int:
    number = decimal(pod.metadata.annotations.get(annotation, "0"))
    return number if number is not None and 0 <= number < 2**31 else 0
