"""Disruption controller: counts the healthy pods of a budget, and the pods that may be evicted now.

Source: Kubernetes pkg/controller/disruption; documentation, "Specifying a Disruption Budget for your Application".
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from kubeloop.api.apps.v1 import ReplicaSet
from kubeloop.api.core.v1 import Pod, PodCondition
from kubeloop.api.meta.v1 import Condition
from kubeloop.api.policy.v1 import PodDisruptionBudget, PodDisruptionBudgetStatus
from kubeloop.cache import Head, InformerEvent
from kubeloop.client import Client
from kubeloop.controller import Controller, Predicate, Result, WatchedKind, controller_of
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents, is_ready, scaled_value
from kubeloop.meta import KubeloopError, LabelSelector, NotFound, ObjectKey, OwnerReference, UnknownKind, Unstructured, selector_from

# Computes the expected and the required healthy pods of a disruption budget from its spec and the scale of the pods' controllers.
#
# Source: Kubernetes pkg/controller/disruption (getExpectedPodCount, finders).


class SizeUnknown(KubeloopError):
    """The number of expected pods of a disruption budget cannot be determined."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The numbers of pods that a disruption budget expects.

    ``pods`` is the number of expected pods, and ``healthy`` the number of pods that must be healthy. ``unmanaged`` says that some pods have
    no controller and were not counted.
    """

    pods: int
    healthy: int
    unmanaged: bool = False


async def expected_pods(client: Client, budget: PodDisruptionBudget, pods: Sequence[Pod]) -> Expected:
    """Compute how many pods a disruption budget expects.

    Raises:
        SizeUnknown: The budget has a percentage or ``maxUnavailable``, and the controller of a pod or its scale does not exist.
    """
    least, maximum = budget.spec.min_available, budget.spec.max_unavailable
    if maximum is not None:
        total, unmanaged = await _scale(client, pods)
        return Expected(total, max(total - scaled_value(maximum, total, up=True), 0), unmanaged)
    if isinstance(least, str):
        total, unmanaged = await _scale(client, pods)
        return Expected(total, scaled_value(least, total, up=True), unmanaged)
    return Expected(len(pods), least, False) if least is not None else Expected(0, 0)


async def _scale(client: Client, pods: Sequence[Pod]) -> tuple[int, bool]:
    """Return the sum of the replicas of all controllers of the pods, and whether a pod has no controller."""
    known: dict[str, int] = {}
    tops: dict[str, tuple[str, int]] = {}
    unmanaged = False
    for pod in pods:
        owner = controller_of(pod)
        if owner is None:
            unmanaged = True
            continue
        if owner.uid not in tops:
            result = await _scale_of(client, owner, pod.metadata.namespace)
            if result is None:
                raise SizeUnknown(f'found no controllers for pod "{pod.metadata.name}"')
            tops[owner.uid] = result
        uid, replicas = tops[owner.uid]
        known[uid] = replicas
    return sum(known.values()), unmanaged


async def _scale_of(client: Client, owner: OwnerReference, namespace: str) -> tuple[str, int] | None:
    """Return uid and replicas of a pod's controller, or None if it was deleted. A ReplicaSet of a Deployment stands for the Deployment."""
    if owner.kind == "ReplicaSet" and owner.api_version.startswith("apps/"):
        try:
            replica_set = await client.get_metadata(ReplicaSet, owner.name, namespace=namespace)
        except NotFound:
            return None
        above = next((one for one in replica_set.metadata.owner_references if one.controller), None)
        if replica_set.metadata.uid == owner.uid and above is not None:
            owner = above
    kind = Unstructured.for_kind(owner.api_version, owner.kind)
    try:
        await client.mapping(kind)
    except UnknownKind:
        raise SizeUnknown(f'no matches for kind "{owner.kind}" in version "{owner.api_version}"') from None
    try:
        scale = await client.get_scale(kind, owner.name, namespace=namespace)
    except NotFound:
        gvr = (await client.mapping(kind)).gvr
        if any(one.gvr == gvr and "scale" in one.subresources for one in await client.mapper.resources()):
            return None
        raise SizeUnknown(f"{gvr.group_resource} does not implement the scale subresource") from None
    return (owner.uid, scale.spec.replicas or 0) if scale.metadata.uid == owner.uid else None


ALLOWED = "DisruptionAllowed"
#: The time after which an evicted pod that is not being deleted counts as healthy again.
DELETION_TIMEOUT = timedelta(minutes=2)


class DisruptionController(Controller[PodDisruptionBudget], watches=[WatchedKind(Pod, to="budgets_of")], name="disruption-controller"):
    """Writes the status of disruption budgets, which evictions read and decrease.

    If the number of expected pods is unknown, the status allows no disruption, and a condition gives the reason.
    """

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents(component="controllermanager")]

    def budgets_of(self, pod: Head) -> list[ObjectKey]:
        """Return the keys of all budgets that match the labels of a pod."""
        return [
            ObjectKey("", budget.metadata.namespace, budget.metadata.name)
            for budget in self.lister(PodDisruptionBudget).each(pod.namespace)
            if selector_from(budget.spec.selector).matches(pod.labels)
        ]

    async def reconcile(self, budget: PodDisruptionBudget) -> Result | None:
        pods = self.lister(Pod).list(budget.metadata.namespace, label_selector=selector_from(budget.spec.selector))
        if not pods:
            self.events.normal(budget, "NoPods", "No matching pods found")
        now = self.clock.wall().replace(microsecond=0)
        try:
            expected = await expected_pods(self.client, budget, pods)
        except SizeUnknown as reason:
            self.events.warning(budget, "CalculateExpectedPodCountFailed", f"Failed to calculate the number of expected pods: {reason}")
            await self._write(budget, _failed(budget.status, str(reason), now))
            raise
        if expected.unmanaged:
            self.events.warning(budget, "UnmanagedPods", _UNMANAGED.format(go_selector(budget.spec.selector)))
        counted = count(budget.status, pods, expected, now)
        for pod in counted.stayed:
            # Upstream prints the namespace twice instead of the budget's name.
            place = budget.metadata.namespace
            description = f"Pod was expected by PDB {place}/{place} to be deleted but it wasn't"
            self.events.warning(pod, "NotDeleted", description)
        await self._write(budget, status_of(budget, counted, now))
        return None if counted.recheck is None else Result(requeue_after=max((counted.recheck - now).total_seconds(), 1.0))

    async def _write(self, budget: PodDisruptionBudget, status: PodDisruptionBudgetStatus) -> None:
        if status == budget.status:
            return
        try:
            await self.client.update_status(msgspec.structs.replace(budget, status=status))
        except NotFound:
            return


#: Time after which the condition DisruptionTarget of a pod that is not being deleted is stale.
STALE_TIMEOUT = timedelta(minutes=2)
_DISRUPTION_TARGET = "DisruptionTarget"
_CONDITIONS = "status.conditions"


def _is_disruption_target(event: InformerEvent[Pod]) -> bool:
    conditions = event.head.value(_CONDITIONS) or ()
    return not event.head.deleting and any(one.get("type") == _DISRUPTION_TARGET and one.get("status") == "True" for one in conditions)


class StaleDisruptionController(
    Controller[Pod], predicates=[Predicate(_is_disruption_target, (_CONDITIONS,))], name="disruption-controller-stale-conditions"
):
    """Resets the condition DisruptionTarget of pods to False two minutes after an eviction that led to no deletion."""

    async def reconcile(self, pod: Pod) -> Result | None:
        now = self.clock.wall()
        due = stale_at(pod)
        if due is None:
            return None
        if due > now:
            return Result(requeue_after=(due - now).total_seconds())
        generation = pod.metadata.generation or None
        reset = PodCondition(
            type=_DISRUPTION_TARGET, status="False", last_transition_time=now.replace(microsecond=0), observed_generation=generation
        )
        conditions = [reset if one.type == _DISRUPTION_TARGET else one for one in pod.status.conditions]
        with contextlib.suppress(NotFound):
            await self.client.update_status(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=conditions)))
        return None


def stale_at(pod: Pod) -> datetime | None:
    """Return the time at which a pod's condition DisruptionTarget is stale, or None if the condition is not True or does not become stale.

    The condition of a pod that its kubelet terminates does not: that may take long. Source: disruption.go
    (nonTerminatingPodHasStaleDisruptionCondition).
    """
    if pod.metadata.deletion_timestamp is not None or pod.status.phase in ("Succeeded", "Failed"):
        return None
    condition = next((one for one in pod.status.conditions if one.type == _DISRUPTION_TARGET), None)
    if condition is None or condition.status != "True" or condition.reason == "TerminationByKubelet":
        return None
    return (condition.last_transition_time or datetime.min.replace(tzinfo=UTC)) + STALE_TIMEOUT


_UNMANAGED = (
    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the PDB cannot be "
    'calculated correctly, which may result in undefined behavior. To account for these pods please set ".spec.minAvailable" field of '
    "the PDB to an integer value."
)


def go_selector(selector: LabelSelector | None) -> str:
    """Return the text of a label selector that Go prints for ``%v``, which upstream's Event contains."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted(selector.match_labels.items()))
    rules = "".join(
        f"LabelSelectorRequirement{{Key:{rule.key},Operator:{rule.operator},Values:[{' '.join(rule.values)}],}},"
        for rule in selector.match_expressions
    )
    return f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{rules}}},}}"


@dataclass(frozen=True, slots=True)
class Counted:
    """The healthy and the evicted pods of a budget.

    ``healthy`` is the number of healthy pods. ``disrupted`` has the recently evicted pods that are not being deleted yet, with the time of
    their eviction. ``stayed`` has pods that are not being deleted although they were evicted more than ``DELETION_TIMEOUT`` ago.
    ``recheck`` is the time at which the first of the ``disrupted`` pods exceeds this time; None without such pods.
    """

    healthy: int
    expected: Expected
    disrupted: dict[str, datetime]
    stayed: list[Pod]
    recheck: datetime | None


def count(status: PodDisruptionBudgetStatus, pods: Iterable[Pod], expected: Expected, now: datetime) -> Counted:
    """Count the pods of a budget. A pod is healthy if it is ready, and neither terminating nor recently evicted.

    Args:
        status: The present status, which names the evicted pods.
        pods: The pods that the budget selects.
        expected: The expected numbers.
        now: The present time.

    Returns:
        The counts and the evicted pods.
    """
    healthy = 0
    disrupted: dict[str, datetime] = {}
    stayed = []
    for pod in pods:
        if pod.metadata.deletion_timestamp is not None:
            continue
        since = status.disrupted_pods.get(pod.metadata.name)
        if since is not None and since + DELETION_TIMEOUT >= now:
            disrupted[pod.metadata.name] = since
            continue
        if since is not None:
            stayed.append(pod)
        healthy += is_ready(pod)
    recheck = min(disrupted.values()) + DELETION_TIMEOUT if disrupted else None
    return Counted(healthy, expected, disrupted, stayed, recheck)


def status_of(budget: PodDisruptionBudget, counted: Counted, now: datetime) -> PodDisruptionBudgetStatus:
    """Return the new status of a budget. It allows no disruption while no pod is expected: pods may just have been created."""
    spare = counted.healthy - counted.expected.healthy
    allowed = max(spare, 0) if counted.expected.pods > 0 else 0
    state, reason = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    generation = budget.metadata.generation or 0
    condition = Condition(type=ALLOWED, status=state, reason=reason, observed_generation=generation, last_transition_time=now)
    return msgspec.structs.replace(
        budget.status,
        current_healthy=counted.healthy,
        desired_healthy=counted.expected.healthy,
        expected_pods=counted.expected.pods,
        disruptions_allowed=allowed,
        disrupted_pods=counted.disrupted,
        observed_generation=generation,
        conditions=_with(budget.status.conditions, condition),
    )


def _failed(status: PodDisruptionBudgetStatus, reason: str, now: datetime) -> PodDisruptionBudgetStatus:
    generation = status.observed_generation or 0
    condition = Condition(
        type=ALLOWED, status="False", reason="SyncFailed", message=reason, observed_generation=generation, last_transition_time=now
    )
    return msgspec.structs.replace(status, disruptions_allowed=0, conditions=_with(status.conditions, condition))


def _with(conditions: list[Condition], new: Condition) -> list[Condition]:
    """Return the conditions with one replaced or added; its transition time changes only with its status."""
    before = next((one for one in conditions if one.type == new.type), None)
    if before is None:
        return [*conditions, new]
    if before.status == new.status:
        new = msgspec.structs.replace(new, last_transition_time=before.last_transition_time)
    return [new if one is before else one for one in conditions]
