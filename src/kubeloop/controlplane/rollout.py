"""The rollout of a Deployment from its old ReplicaSets to the new one, as pure computation.

No I/O and no clock: the Deployment controller executes the decisions.
Source: Kubernetes pkg/controller/deployment (rolling.go, sync.go) and its util/deployment_util.go.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from kubeloop.meta import IntOrString


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a rollout around ``replicas``: how many more pods at once, how many unavailable."""

    replicas: int
    surge: int
    unavailable: int

    @classmethod
    def resolve(cls, replicas: int, max_surge: IntOrString | None, max_unavailable: IntOrString | None) -> Bounds:
        """Resolve the fields of ``spec.strategy.rollingUpdate``: numbers, or percentages of ``replicas`` (surge rounded up, the other
        down).

        If both are zero, a rollout would never progress: then one pod may be unavailable (ResolveFenceposts).
        """
        surge = scaled(max_surge, replicas, up=True)
        unavailable = scaled(max_unavailable, replicas, up=False)
        if surge == 0 and unavailable == 0:
            unavailable = 1
        return cls(replicas, surge, min(unavailable, replicas))

    @property
    def most(self) -> int:
        return self.replicas + self.surge

    @property
    def least_available(self) -> int:
        return self.replicas - self.unavailable


@dataclass(frozen=True, slots=True)
class Set:
    """A ReplicaSet during a rollout. ``before`` is the maximum of pods of its Deployment when it was last scaled (annotation)."""

    name: str
    replicas: int
    available: int
    created: datetime
    desired: int | None = None
    before: int | None = None


def scaled(value: IntOrString | None, total: int, *, up: bool) -> int:
    """Resolve a number, or a percentage such as ``25%`` of ``total``. None and other texts are 0: the server has validated it."""
    if isinstance(value, int):
        return value
    text = (value or "").strip()
    if not text.endswith("%") or not text[:-1].isdigit():
        return 0
    part = total * int(text[:-1]) / 100
    return math.ceil(part) if up else math.floor(part)


def new_size(bounds: Bounds, new: Set | None, old: Iterable[Set]) -> int:
    """Return the present target size of the new ReplicaSet, given the sizes of the old ones. Without one: its initial size."""
    now = new.replicas if new else 0
    if now >= bounds.replicas:
        return bounds.replicas
    total = now + sum(one.replicas for one in old)
    if total >= bounds.most:
        return now
    return now + min(bounds.most - total, bounds.replicas - now)


def shrink_old(bounds: Bounds, new: Set, old: Sequence[Set]) -> dict[str, int]:
    """Return changed sizes of the old ReplicaSets: first unavailable pods are removed, then as many as the new ones replace."""
    oldest_first = sorted(old, key=lambda one: (one.created, one.name))
    sizes = {one.name: one.replicas for one in oldest_first}
    pods = new.replicas + sum(sizes.values())
    # Pods of the new set that are not available yet must not be counted as a replacement for the old ones.
    budget = pods - bounds.least_available - (new.replicas - new.available)
    if budget <= 0:
        return {}
    cleanup = budget
    for one in oldest_first:
        unhealthy = min(sizes[one.name] - one.available, cleanup)
        if unhealthy > 0:
            sizes[one.name] -= unhealthy
            cleanup -= unhealthy
    spare = new.available + sum(one.available for one in oldest_first) - bounds.least_available
    # A status may still count pods that a set is about to delete (upstream trusts it): never more than sizes allow.
    spare = min(spare, cleanup)
    for one in oldest_first:
        step = min(sizes[one.name], max(spare, 0))
        sizes[one.name] -= step
        spare -= step
    return {one.name: sizes[one.name] for one in oldest_first if sizes[one.name] != one.replicas}


def rescale(bounds: Bounds, new: Set | None, old: Sequence[Set], *, rolling: bool, status_replicas: int) -> dict[str, int]:
    """Return the sizes that change when the Deployment itself is scaled: one ReplicaSet gets all outside of a rollout, else in proportion.

    Args:
        bounds: The limits of the rollout.
        new: The new ReplicaSet; None if there is none.
        old: The old ReplicaSets.
        rolling: Whether the strategy is RollingUpdate.
        status_replicas: The Deployment's counted pods.

    Returns:
        New sizes by name.
    """
    sets = [*old, new] if new else list(old)
    active = [one for one in sets if one.replicas > 0]
    if len(active) <= 1:
        one = active[0] if active else new or max(old, key=lambda one: one.created, default=None)
        return {one.name: bounds.replicas} if one and one.replicas != bounds.replicas else {}
    if new and new.desired == bounds.replicas == new.replicas == new.available:
        return {one.name: 0 for one in old if one.replicas > 0}
    if not rolling:
        return {}
    allowed = bounds.most if bounds.replicas > 0 else 0
    to_add = allowed - sum(one.replicas for one in active)
    if to_add == 0:
        return {}
    # Larger sets take the rounding error; among equals the newer grow first and the older shrink first.
    direction = -1 if to_add > 0 else 1
    ordered = sorted(active, key=lambda one: (-one.replicas, direction * one.created.timestamp()))
    sizes: dict[str, int] = {}
    added = 0
    for one in ordered:
        part = _proportion(one, bounds, to_add - added, status_replicas)
        sizes[one.name] = one.replicas + part
        added += part
    sizes[ordered[0].name] = max(sizes[ordered[0].name] + to_add - added, 0)
    return {one.name: sizes[one.name] for one in ordered if sizes[one.name] != one.replicas}


def _proportion(one: Set, bounds: Bounds, left: int, status_replicas: int) -> int:
    if bounds.replicas == 0:
        part = -one.replicas
    else:
        before = one.before or status_replicas or bounds.most
        part = math.floor(one.replicas * bounds.most / before + 0.5) - one.replicas
    return min(part, left) if left > 0 else max(part, left)
