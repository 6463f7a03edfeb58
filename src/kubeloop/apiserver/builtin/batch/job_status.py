"""Validates updates of a job's status. Source: ValidateJobStatusUpdate; pkg/registry/batch/job for when each rule applies.

External controllers may write the status too. A rule therefore applies only to changed fields, and an unchanged invalid value is accepted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from kubeloop.apiserver.builtin.apps.template import check_not_negative_counters
from kubeloop.meta.field_error import OMITTED, Errors, FieldError, duplicate, invalid, required
from kubeloop.meta.strconv import go_quoted
from kubeloop.types import JSONObject

# Indexes of an indexed job in the form of its status: ``0-2,5``. Source: pkg/apis/batch/validation (validateIndexesFormat).


_NUMBER = re.compile(r"\+?[0-9]{1,30}")
_MAX_INT64 = 2**63 - 1

Interval = tuple[int, int]


class InvalidIndexes(ValueError):
    """The indexes are invalid. The message of the exception is sent to the client."""


def check_indexes(text: str, completions: int) -> int:
    """Check a list of indexes such as ``0-2,5``, and return the number of indexes in it.

    Raises:
        InvalidIndexes: The intervals are malformed, out of order, or not below ``completions``.
    """
    last: int | None = None
    total = 0
    for part in text.split(",") if text else ():
        first, end = _interval(part, completions)
        if last is not None and last >= first:
            raise InvalidIndexes(f"non-increasing order, previous: {last}, current: {first}")
        last = end
        total += end - first + 1
    return total


def overlap(completed: str, failed: str, completions: int) -> int | None:
    """Return the first index that both lists contain, or None if there is none. Invalid intervals are skipped."""
    one, other = _intervals(completed, completions), _intervals(failed, completions)
    while one and other:
        (start, end), (other_start, other_end) = one[-1], other[-1]
        if start <= other_end and other_start <= end:
            return max(start, other_start)
        (one if start <= other_start else other).pop()
    return None


def _intervals(text: str, completions: int) -> list[Interval]:
    """Return the intervals, the last one first."""
    result = []
    for part in text.split(",") if text else ():
        try:
            result.append(_interval(part, completions))
        except InvalidIndexes:
            continue
    return result[::-1]


def _interval(text: str, completions: int) -> Interval:
    limits = text.split("-")
    if len(limits) > 2:
        rule = "violates the requirement that an index interval can have at most two parts separated by '-'"
        raise InvalidIndexes(f"the fragment {go_quoted(text)} {rule}")
    numbers = [_index(limit, completions) for limit in limits]
    if len(numbers) > 1 and numbers[0] >= numbers[1]:
        raise InvalidIndexes(f"non-increasing order, previous: {numbers[0]}, current: {numbers[1]}")
    return numbers[0], numbers[-1]


def _index(text: str, completions: int) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > _MAX_INT64:
        raise InvalidIndexes(f"cannot convert string to integer for index: {go_quoted(text)}")
    if int(text) >= completions:
        raise InvalidIndexes(f"too large index: {go_quoted(text)}")
    return int(text)


_FINAL = ("Failed", "Complete", "FailureTarget")


class _State:
    """The status of a job, with its conditions and counters in the form that the rules need."""

    def __init__(self, job: JSONObject) -> None:
        self.status: JSONObject = job.get("status") or {}
        self.complete, self.failed = self.has_condition("Complete"), self.has_condition("Failed")
        self.failing, self.succeeded = self.has_condition("FailureTarget"), self.has_condition("SuccessCriteriaMet")
        self.finished = self.complete or self.failed

    def has_condition(self, kind: str, value: str = "True") -> bool:
        """Return whether a condition has a status value."""
        return any(one.get("type") == kind and one.get("status") == value for one in self.status.get("conditions") or ())

    def count(self, name: str) -> int:
        """Return a counter, or 0 if it is absent."""
        return int(self.status.get(name) or 0)

    @cached_property
    def uncounted(self) -> JSONObject:
        """The uncounted terminated pods."""
        return {name: ids for name, ids in (self.status.get("uncountedTerminatedPods") or {}).items() if ids}


@dataclass(frozen=True)
class _Change:
    """An update of a job's status: the spec of the job, the new and the old status."""

    spec: JSONObject
    new: _State
    old: _State

    def of(self, *names: str) -> bool:
        """Return whether any of the fields changed."""
        return any(self.new.status.get(name) != self.old.status.get(name) for name in names)

    def in_state(self, *names: str) -> bool:
        """Return whether any of these properties of the state changed."""
        return any(getattr(self.new, name) != getattr(self.old, name) for name in names)


def validate_status_update(job: JSONObject, old: JSONObject) -> Errors:
    """Validate an update of the status."""
    change = _Change(job["spec"], _State(job), _State(old))
    yield from check_not_negative_counters(change.new.status, "active", "succeeded", "failed", "ready", "terminating")
    yield from _uncounted(change.new.status.get("uncountedTerminatedPods") or {})
    yield from _ends(change)
    yield from _finished(change)
    yield from _indexes(change)
    yield from _pods(change)
    yield from _success(change)
    yield from _history(change)


def _conditions(detail: str) -> FieldError:
    return invalid("status.conditions", OMITTED, detail)


def _uncounted(pods: JSONObject) -> Errors:
    seen: set[str] = set()
    for name in ("succeeded", "failed"):
        for index, uid in enumerate(pods.get(name) or ()):
            path = f"status.uncountedTerminatedPods.{name}[{index}]"
            if not uid:
                yield invalid(path, uid, "must not be empty")
            elif uid in seen:
                yield duplicate(path, uid)
            seen.add(uid)


def _ends(change: _Change) -> Errors:
    """Check that Complete and Failed exclude each other, and that only a complete job has a completion time."""
    new = change.new
    start, end = new.status.get("startTime"), new.status.get("completionTime")
    if change.in_state("complete", "failed") and new.complete and new.failed:
        yield _conditions("cannot set Complete=True and Failed=true conditions")
    if change.in_state("complete", "failing") and new.complete and new.failing:
        yield _conditions("cannot set Complete=True and FailureTarget=true conditions")
    if change.in_state("complete") or change.of("completionTime"):
        if end is not None and not new.complete:
            yield invalid("status.completionTime", end, "cannot set completionTime when there is no Complete=True condition")
        if end is None and new.complete:
            yield required("status.completionTime", "completionTime is required for Complete jobs")
    # Times of the same format compare as text.
    if change.of("startTime", "completionTime") and start is not None and end is not None and end < start:
        yield invalid("status.completionTime", end, "must be equal to or after `startTime`")
    if (change.in_state("failed") or change.of("failedIndexes")) and new.failed and not new.failing:
        yield _conditions("cannot set Failed=True condition without the FailureTarget=true condition")
    if change.in_state("complete", "succeeded") and new.complete and not new.succeeded:
        yield _conditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")


def _finished(change: _Change) -> Errors:
    """Check that a finished job has a start time and no pods left."""
    new, ends = change.new, change.in_state("finished")
    if not new.finished:
        return
    if (ends or change.of("active")) and new.count("active") > 0:
        yield invalid("status.active", new.count("active"), "active>0 is invalid for finished job")
    nothing_to_do = change.spec.get("suspend") is True and change.spec.get("completions") == 0
    if (ends or change.of("startTime")) and not nothing_to_do and new.status.get("startTime") is None:
        yield required("status.startTime", "startTime is required for finished job")
    if (ends or new.uncounted != change.old.uncounted) and new.uncounted:
        yield invalid("status.uncountedTerminatedPods", new.status["uncountedTerminatedPods"], "must be empty for finished job")


def _indexes(change: _Change) -> Errors:
    spec, status = change.spec, change.new.status
    completed, failed, completions = status.get("completedIndexes") or "", status.get("failedIndexes"), spec.get("completions")
    limited = spec.get("backoffLimitPerIndex") is not None
    completed_changed, failed_changed = change.of("completedIndexes"), change.of("failedIndexes")
    if completed_changed and completions is not None:
        yield from _readable("completedIndexes", completed, completions)
    if failed_changed and completions is not None and limited and failed is not None:
        yield from _readable("failedIndexes", failed, completions)
    if completed_changed and completed and spec.get("completionMode") != "Indexed":
        detail = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield invalid("status.completedIndexes", completed, detail)
    if failed_changed and not limited and failed is not None:
        yield invalid("status.failedIndexes", failed, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
    if (completed_changed or failed_changed) and completions is not None and failed is not None:
        both = overlap(completed, failed, completions)
        if both is not None:
            yield invalid("status.failedIndexes", failed, f"failedIndexes and completedIndexes overlap at index: {both}")


def _readable(name: str, text: str, completions: int) -> Errors:
    try:
        check_indexes(text, completions)
    except InvalidIndexes as error:
        yield invalid(f"status.{name}", text, f"error parsing {name}: {error}")


def _pods(change: _Change) -> Errors:
    new = change.new
    if (change.in_state("finished") or change.of("terminating")) and new.finished and new.count("terminating") > 0:
        yield invalid("status.terminating", new.count("terminating"), "terminating>0 is invalid for finished job")
    if change.of("ready", "active") and new.status.get("ready") is not None and new.count("ready") > new.count("active"):
        yield invalid("status.ready", new.count("ready"), "cannot set more ready pods than active")


def _success(change: _Change) -> Errors:
    new = change.new
    if new.succeeded and new.failed:
        yield _conditions("cannot set SuccessCriteriaMet=True and Failed=true conditions")
    if new.succeeded and new.failing:
        yield _conditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
    if change.spec.get("successPolicy") is not None and new.complete and not new.succeeded:
        yield _conditions("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")


def _history(change: _Change) -> Errors:
    """Check that final values do not change."""
    new, old, spec = change.new, change.old, change.spec
    for kind in _FINAL:
        if old.has_condition(kind) and not new.has_condition(kind):
            yield _conditions(f"cannot disable the terminal {kind}=True condition")
    # An elastic indexed job loses the successes of indexes that it no longer has.
    scalable = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    for name, falls in (("failed", False), ("succeeded", scalable)):
        if not falls and new.count(name) < old.count(name):
            yield invalid(f"status.{name}", new.count(name), f"cannot decrease the {name} counter")
    end, start = new.status.get("completionTime"), new.status.get("startTime")
    if end is not None and old.status.get("completionTime") not in (None, end):
        yield invalid("status.completionTime", end, "field is immutable")
    resumes = old.has_condition("Suspended") and new.has_condition("Suspended", "False")
    if old.status.get("startTime") not in (None, start) and not spec.get("suspend") and not resumes:
        yield invalid("status.startTime", start, "field is immutable for unsuspended job once set")
    if old.succeeded and not new.succeeded:
        yield _conditions("cannot disable the SuccessCriteriaMet=True condition")
    if old.complete and not old.succeeded and new.succeeded:
        yield _conditions("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
