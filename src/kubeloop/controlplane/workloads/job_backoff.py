"""Back-off of Jobs: the delay until a failed pod is replaced, and the time at which a pod finished.

Source: Kubernetes pkg/controller/job/backoff_utils.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kubeloop.api.core.v1 import ContainerStatus, Pod
from kubeloop.controlplane.workloads.job_indexes import failure_count, ignored_failure_count

#: Seconds until a pod is replaced after the first failure, and the maximum; each further failure in a row doubles the delay.
INITIAL, MAXIMUM = 10.0, 600.0
_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class BackoffRecord:
    """The failures of a Job's pods since the last success.

    Args:
        failures: Number of failed pods.
        last_failure: When the last one failed; None if there is none.
    """

    failures: int = 0
    last_failure: datetime | None = None

    def with_finished(self, succeeded: Iterable[Pod], failed: Iterable[Pod]) -> BackoffRecord:
        """Return the record after more pods have finished: a success resets it, later failures count."""
        successes, failures = sorted(map(finished_at, succeeded)), sorted(map(finished_at, failed))
        if not successes:
            return BackoffRecord(self.failures + len(failures), failures[-1]) if failures else self
        later = [time for time in failures if time > successes[-1]]
        return BackoffRecord(len(later), later[-1]) if later else BackoffRecord()

    def remaining(self, now: datetime) -> float:
        """Return the seconds until a pod may be created."""
        return _remaining(self.failures, self.last_failure, now)


def remaining_for_index(last_failed: Pod | None, now: datetime) -> float:
    """Return the seconds until another pod may be created for a completion index; 0 if no pod of the index has failed (None)."""
    if last_failed is None:
        return 0.0
    return _remaining(absolute_failure_count(last_failed) + 1, finished_at(last_failed), now)


def absolute_failure_count(pod: Pod) -> int:
    """Return how many pods of the same index failed before a pod, including ignored failures."""
    return failure_count(pod) + ignored_failure_count(pod)


def _remaining(failures: int, last: datetime | None, now: datetime) -> float:
    if not failures or last is None:
        return 0.0
    delay = min(INITIAL * 2.0 ** min(failures - 1, 20), MAXIMUM)
    return max(0.0, delay - (now - last).total_seconds())


def finished_at(pod: Pod) -> datetime:
    """Return when a pod finished.

    The time is that of the end of its last container, including sidecars, which end last. If it is unknown, it is the time of the condition
    Ready=False, or else of the deletion request (without the grace period), or else of the creation.
    """
    sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy == "Always"}
    statuses = [*pod.status.container_statuses, *(one for one in pod.status.init_container_statuses if one.name in sidecars)]
    if (last := _last_end(statuses)) is not None:
        return last
    for condition in pod.status.conditions:
        if condition.type == "Ready":
            if condition.status == "False" and condition.last_transition_time is not None:
                return condition.last_transition_time
            break
    if pod.metadata.deletion_timestamp is not None:
        return pod.metadata.deletion_timestamp - timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    return pod.metadata.creation_timestamp or _BEGINNING


def _last_end(statuses: Sequence[ContainerStatus]) -> datetime | None:
    """Return when the last container ended; None if a container has not ended or its end is unknown."""
    ends = []
    for status in statuses:
        terminated = status.state.terminated
        if terminated is None or terminated.finished_at is None:
            return None
        ends.append(terminated.finished_at)
    return max(ends, default=None)
