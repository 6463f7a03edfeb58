"""The results of probes over the run of a simulated container, and the delays of restarts and pulls. Pure functions of time.

Source: Kubernetes pkg/kubelet/prober/worker.go; client-go util/flowcontrol/backoff.go; pkg/kubelet/kuberuntime (doBackOff).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kubeloop.types import JSONObject

#: Seconds of the first and of the longest delay between two starts of a container, or two pulls of an image.
FIRST_DELAY: Final = 10.0
LONGEST_DELAY: Final = 300.0


@dataclass(frozen=True, slots=True)
class Timeline:
    """Successes and failures over time. ``pieces`` has pairs of a time in seconds and the outcome from then on; the first time is 0."""

    pieces: tuple[tuple[float, bool], ...] = ((0.0, True),)

    def at(self, seconds: float) -> bool:
        return next(outcome for since, outcome in reversed(self.pieces) if since <= max(seconds, 0.0))

    def changed(self, seconds: float, later: Timeline) -> Timeline:
        """Return a timeline that equals this one before ``seconds``, and ``later`` from then on."""
        before = tuple(piece for piece in self.pieces if piece[0] < seconds)
        after = tuple((since, outcome) for since, outcome in later.pieces if since > seconds)
        pieces = (*before, (seconds, later.at(seconds)), *after)
        return Timeline(tuple(piece for number, piece in enumerate(pieces) if not number or pieces[number - 1][1] != piece[1]))

    def changes_after(self, seconds: float) -> list[float]:
        """Return the times after ``seconds`` at which the outcome changes."""
        return [since for since, _ in self.pieces if since > seconds]

    def spans(self) -> Iterator[tuple[float, float, bool]]:
        """Yield start, end and outcome of each piece; the last end is infinity."""
        ends = [since for since, _ in self.pieces[1:]]
        for (since, outcome), end in zip(self.pieces, [*ends, math.inf], strict=True):
            yield since, end, outcome


ALWAYS: Final = Timeline()
NEVER: Final = Timeline(((0.0, False),))


def probe_results(probe: JSONObject, timeline: Timeline, initial: bool | None, begin: float = 0.0) -> list[tuple[float, bool]]:
    """Return the changes of a probe's result: pairs of seconds after the container's start, and the result from then on.

    The probe first runs ``initialDelaySeconds`` after the start, or at ``begin`` if that is later, and then once in each period. Its result
    changes after ``successThreshold`` or ``failureThreshold`` equal outcomes.

    Args:
        probe: The probe in the container's spec, with defaults.
        timeline: The outcomes over time.
        initial: The result before the first run of the probe. None: no result yet.
        begin: Seconds after the container's start at which the startup probe succeeds; the probe does not run earlier.
    """
    period = float(probe.get("periodSeconds") or 10)
    first = max(float(probe.get("initialDelaySeconds") or 0), begin)
    thresholds = {True: int(probe.get("successThreshold") or 1), False: int(probe.get("failureThreshold") or 3)}
    result, changes = initial, list[tuple[float, bool]]()
    for since, end, outcome in timeline.spans():
        skipped = math.ceil((since - first) / period) if since > first else 0
        moment = first + (skipped + thresholds[outcome] - 1) * period
        if outcome != result and moment < end:
            result = outcome
            changes.append((moment, outcome))
    return changes


def result_at(changes: Sequence[tuple[float, bool]], seconds: float, initial: bool | None) -> tuple[bool | None, float]:
    """Return a probe's result at ``seconds`` after the container's start, and the time of its next change (infinity: none).

    ``changes`` come from ``probe_results``, and ``initial`` is the result before the first of them.
    """
    result = initial
    for moment, outcome in changes:
        if moment > seconds:
            return result, moment
        result = outcome
    return result, math.inf


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """The delay before the next attempt to start a container or pull an image: 10 seconds, doubled with each failure up to 300.

    ``updated`` is the time of the last attempt. The delay is forgotten 600 seconds after it.
    """

    seconds: float
    updated: float

    def forgotten(self, moment: float) -> bool:
        return moment - self.updated > 2 * LONGEST_DELAY


def remaining_delay(delay: RetryDelay | None, failed: float, now: float) -> float:
    """Return the seconds until the next attempt may be made.

    Args:
        delay: The delay so far; None before the first retry.
        failed: The time of the last failure in seconds.
        now: The present time in seconds.
    """
    if delay is None or delay.forgotten(failed):
        return 0.0
    return max(failed + delay.seconds - now, 0.0)


def next_delay(delay: RetryDelay | None, failed: float, now: float) -> RetryDelay:
    """Return the delay that applies after an attempt now. The arguments are those of ``remaining_delay``."""
    if delay is None or delay.forgotten(failed):
        return RetryDelay(FIRST_DELAY, now)
    return RetryDelay(min(2 * delay.seconds, LONGEST_DELAY), now)


def go_duration(seconds: float) -> str:
    """Format whole seconds like Go's ``Duration.String``: ``10s``, ``1m20s``, ``5m0s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
