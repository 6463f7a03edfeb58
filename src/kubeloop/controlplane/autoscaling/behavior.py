"""Limits and delays of scaling: stabilization windows, policies, minimum and maximum. Pure functions over a history of decisions.

Source: Kubernetes pkg/controller/podautoscaler/horizontal.go (normalizeDesiredReplicas, normalizeDesiredReplicasWithBehaviors).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kubeloop.api.autoscaling.v2 import HorizontalPodAutoscalerBehavior, HPAScalingRules

#: Seconds for which the highest recommendation counts before a workload shrinks (kube-controller-manager's default).
DOWNSCALE_STABILIZATION = 300.0
_GROWTH_FACTOR, _GROWTH_MINIMUM = 2, 4
_UNCHANGED = ("ReadyForNewScale", "recommended size matches current size")
_WITHIN = ("DesiredWithinRange", "the desired count is within the acceptable range")
_SHRINKING_STABILIZED = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
_GROWING_STABILIZED = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
_TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
_TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
_GROWS_TOO_FAST = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
_SHRINKS_TOO_FAST = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")


class PastAmount(NamedTuple):
    """A recommended number of replicas or the absolute change of a rescale, and its time in seconds of a monotonic clock."""

    time: float
    amount: int


@dataclass(slots=True)
class ScalingHistory:
    """Recent recommendations and rescales of an autoscaler, only in memory, as upstream."""

    recommendations: list[PastAmount] = field(default_factory=list)
    increases: list[PastAmount] = field(default_factory=list)
    decreases: list[PastAmount] = field(default_factory=list)

    def record_initial(self, replicas: int, now: float) -> None:
        """Record the size at which an autoscaler starts, so that a restart does not shrink the workload at once."""
        if not self.recommendations:
            self.recommendations.append(PastAmount(now, replicas))

    def record_rescale(self, behavior: HorizontalPodAutoscalerBehavior | None, before: int, after: int, now: float) -> None:
        """Record a rescale for the policies of a behavior.

        Args:
            behavior: Rules of the autoscaler. None: no policy reads the rescale, and it is not recorded.
            before: Number of replicas before the rescale.
            after: Number of replicas after the rescale.
            now: Seconds of the history's clock.
        """
        if behavior is None:
            return
        rules = behavior.scale_up if after > before else behavior.scale_down
        changes = self.increases if after > before else self.decreases
        longest = max((policy.period_seconds for policy in rules.policies), default=0) if rules is not None else 0
        changes[:] = [one for one in changes if one.time >= now - longest]
        changes.append(PastAmount(now, abs(after - before)))


class ScalingBounds(NamedTuple):
    """The present number of replicas, and the minimum and maximum of the autoscaler."""

    current: int
    minimum: int
    maximum: int


class ScalingDecision(NamedTuple):
    """The number of replicas to set, with reason and message of the conditions AbleToScale (``able``) and ScalingLimited (``limit``).

    ``limited`` is the status of ScalingLimited.
    """

    replicas: int
    able: tuple[str, str]
    limited: bool
    limit: tuple[str, str]


def decide_scaling(
    history: ScalingHistory, bounds: ScalingBounds, desired: int, behavior: HorizontalPodAutoscalerBehavior | None, now: float
) -> ScalingDecision:
    """Apply stabilization, rate limits and bounds to the number of replicas that the metrics recommend, and record the recommendation.

    Args:
        history: Earlier recommendations and rescales, to which the new recommendation is added.
        bounds: Present number, minimum and maximum.
        desired: Number of replicas that the metrics recommend.
        behavior: Rules of the autoscaler, with the server's defaults. None: the fixed rules from before ``spec.behavior`` existed.
        now: Seconds of the clock of ``history``.

    Returns:
        The number of replicas to set, with the reasons for conditions.
    """
    if behavior is None or behavior.scale_up is None or behavior.scale_down is None:
        stabilized = _stabilize(history, desired, now)
        able = _UNCHANGED if stabilized == desired else _SHRINKING_STABILIZED
        replicas, limit = _limit(bounds, stabilized)
    else:
        stabilized = _stabilize_by_rules(history, bounds.current, desired, behavior.scale_up, behavior.scale_down, now)
        able = _GROWING_STABILIZED if desired >= bounds.current else _SHRINKING_STABILIZED
        able = _UNCHANGED if stabilized == desired else able
        replicas, limit = _limit_by_rules(history, bounds, stabilized, behavior.scale_up, behavior.scale_down, now)
    return ScalingDecision(replicas, able, replicas != stabilized, limit)


def _stabilize(history: ScalingHistory, desired: int, now: float) -> int:
    recent = [one for one in history.recommendations if one.time >= now - DOWNSCALE_STABILIZATION]
    history.recommendations[:] = [*recent, PastAmount(now, desired)]
    return max([desired, *(one.amount for one in recent)])


def _stabilize_by_rules(
    history: ScalingHistory, current: int, desired: int, growing: HPAScalingRules, shrinking: HPAScalingRules, now: float
) -> int:
    """Return the present number, raised to the lowest and lowered to the highest recommendation of the windows."""
    up, down = _window(growing, 0.0), _window(shrinking, DOWNSCALE_STABILIZATION)
    lowest = min([desired, *(one.amount for one in history.recommendations if one.time > now - up)])
    highest = max([desired, *(one.amount for one in history.recommendations if one.time > now - down)])
    recent = [one for one in history.recommendations if one.time >= now - max(up, down)]
    history.recommendations[:] = [*recent, PastAmount(now, desired)]
    return min(max(current, lowest), highest)


def _window(rules: HPAScalingRules, default: float) -> float:
    return default if rules.stabilization_window_seconds is None else float(rules.stabilization_window_seconds)


def _limit(bounds: ScalingBounds, desired: int) -> tuple[int, tuple[str, str]]:
    """Limit a number of replicas to the bounds, and growth to double the present number or four."""
    fastest = max(_GROWTH_FACTOR * bounds.current, _GROWTH_MINIMUM)
    if desired < bounds.minimum:
        return bounds.minimum, _TOO_FEW
    if desired > min(bounds.maximum, fastest):
        return (fastest, _GROWS_TOO_FAST) if bounds.maximum > fastest else (bounds.maximum, _TOO_MANY)
    return desired, _WITHIN


def _limit_by_rules(
    history: ScalingHistory, bounds: ScalingBounds, desired: int, growing: HPAScalingRules, shrinking: HPAScalingRules, now: float
) -> tuple[int, tuple[str, str]]:
    if desired > bounds.current:
        fastest = max(_most_replicas(history, bounds.current, growing, now), bounds.current)
        allowed, limit = (fastest, _GROWS_TOO_FAST) if bounds.maximum > fastest else (bounds.maximum, _TOO_MANY)
        if desired > allowed:
            return allowed, limit
    elif desired < bounds.current:
        fastest = min(_fewest_replicas(history, bounds.current, shrinking, now), bounds.current)
        allowed, limit = (fastest, _SHRINKS_TOO_FAST) if bounds.minimum < fastest else (bounds.minimum, _TOO_FEW)
        if desired < allowed:
            return allowed, limit
    return desired, _WITHIN


def _most_replicas(history: ScalingHistory, current: int, rules: HPAScalingRules, now: float) -> int:
    """Return the highest number of replicas that the policies for growth allow now."""
    if rules.select_policy == "Disabled":
        return current
    select: Callable[[list[int]], int] = min if rules.select_policy == "Min" else max
    # A percentage is rounded up: a small workload would never grow otherwise.
    return select(
        [
            start + value if kind == "Pods" else math.ceil(start * (1 + value / 100))
            for start, kind, value in _policies(history, current, rules, now)
        ]
        or [current]
    )


def _fewest_replicas(history: ScalingHistory, current: int, rules: HPAScalingRules, now: float) -> int:
    """Return the lowest number of replicas that the policies for shrinking allow now."""
    if rules.select_policy == "Disabled":
        return current
    select: Callable[[list[int]], int] = max if rules.select_policy == "Min" else min
    return select(
        [
            start - value if kind == "Pods" else int(start * (1 - value / 100))
            for start, kind, value in _policies(history, current, rules, now)
        ]
        or [current]
    )


def _policies(history: ScalingHistory, current: int, rules: HPAScalingRules, now: float) -> list[tuple[int, str, int]]:
    """Return for each policy the number of replicas at the start of its period, its type and its value."""
    return [
        (
            current - _sum(history.increases, policy.period_seconds, now) + _sum(history.decreases, policy.period_seconds, now),
            policy.type,
            policy.value,
        )
        for policy in rules.policies
    ]


def _sum(changes: Sequence[PastAmount], period: int, now: float) -> int:
    return sum(one.amount for one in changes if one.time > now - period)
