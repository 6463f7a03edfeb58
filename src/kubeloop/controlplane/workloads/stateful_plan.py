"""The next steps of a StatefulSet, computed from its pods and claims, and its status. No I/O and no clock.

Source: Kubernetes pkg/controller/statefulset (stateful_set_control.go, stateful_set_utils.go); KEP-961 (maxUnavailable),
KEP-3335 (start ordinal).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from operator import itemgetter
from typing import NamedTuple

from kubeloop.api.apps.v1 import StatefulSet, StatefulSetStatus
from kubeloop.cache import Owner
from kubeloop.controlplane.controller_utils import scaled_value
from kubeloop.controlplane.workloads.history import REVISION_LABEL
from kubeloop.controlplane.workloads.pod_snapshots import PodSnapshot
from kubeloop.controlplane.workloads.stateful_claims import ClaimOwnership, Referent, RetentionPolicy, claim_name
from kubeloop.meta import IntOrString

NAME_LABEL = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL = "apps.kubernetes.io/pod-index"
_NAME = re.compile(r"(?P<set>.*)-(?P<ordinal>[0-9]+)", re.ASCII | re.DOTALL)
_LARGEST_ORDINAL = 2**31 - 1


def parse_name(pod: str) -> tuple[str, int]:
    """Return the name of the StatefulSet and the ordinal in the name of a pod; "" and -1 if the name has another form."""
    match = _NAME.fullmatch(pod)
    if match is None:
        return "", -1
    ordinal = int(match["ordinal"])
    return match["set"], ordinal if ordinal <= _LARGEST_ORDINAL else -1


class ClaimState(NamedTuple):
    """The state of an existing claim: whether it is being deleted, and its owner references."""

    deleting: bool
    owners: Sequence[Owner]


@dataclass(frozen=True, slots=True)
class SetFacts:
    """The properties of a StatefulSet that its plan depends on.

    ``start`` is the first ordinal. ``partition`` is None without spec.updateStrategy.rollingUpdate. ``max_unavailable`` is None unless the
    server has the feature gate MaxUnavailableStatefulSet: other servers do not store the field. ``current_replicas`` comes from the status.
    """

    name: str
    uid: str
    start: int
    replicas: int
    parallel: bool
    rolling: bool
    partition: int | None
    max_unavailable: IntOrString | None
    min_ready_seconds: int
    policy: RetentionPolicy
    claim_templates: tuple[str, ...]
    current_replicas: int
    deleting: bool

    @classmethod
    def from_stateful_set(cls, stateful_set: StatefulSet) -> SetFacts:
        spec, metadata = stateful_set.spec, stateful_set.metadata
        rolling_update = spec.update_strategy.rolling_update
        return cls(
            name=metadata.name,
            uid=metadata.uid,
            start=(spec.ordinals.start or 0) if spec.ordinals is not None else 0,
            replicas=1 if spec.replicas is None else spec.replicas,
            parallel=spec.pod_management_policy == "Parallel",
            rolling=spec.update_strategy.type != "OnDelete",
            partition=None if rolling_update is None else rolling_update.partition or 0,
            max_unavailable=None if rolling_update is None else rolling_update.max_unavailable,
            min_ready_seconds=spec.min_ready_seconds or 0,
            policy=RetentionPolicy.from_stateful_set(stateful_set),
            claim_templates=tuple(one.metadata.name for one in spec.volume_claim_templates),
            current_replicas=stateful_set.status.current_replicas or 0,
            deleting=metadata.deletion_timestamp is not None,
        )

    def has_ordinal(self, ordinal: int) -> bool:
        return self.start <= ordinal < self.start + self.replicas

    def claim_names(self, ordinal: int) -> list[str]:
        return [claim_name(one, self.name, ordinal) for one in self.claim_templates]

    def ownership(self, ordinal: int, pod_uid: str) -> ClaimOwnership:
        """Return the possible owners of the claims of one pod; ``pod_uid`` is "" for a pod that does not exist."""
        pod = Referent("v1", "Pod", f"{self.name}-{ordinal}", pod_uid)
        return ClaimOwnership(Referent("apps/v1", "StatefulSet", self.name, self.uid), pod, self.policy, not self.has_ordinal(ordinal))

    def uses_current_revision(self, ordinal: int) -> bool:
        """Return whether a new pod with an ordinal is created from the current revision instead of the update revision."""
        if self.partition is None:
            return self.rolling and ordinal < self.start + self.current_replicas
        return ordinal < self.start + self.partition


class PodAction(Enum):
    """The action of a step on one pod."""

    CREATE = auto()
    DELETE = auto()
    #: Restore labels, volumes and claims of a pod.
    REPAIR = auto()
    #: Create missing claims of a pod, and set the owners of all its claims.
    ENSURE_CLAIMS = auto()
    #: Set the owners of the claims of a pod.
    CORRECT_OWNERS = auto()


class PodStep(NamedTuple):
    """One step of a plan: an action on the pod with an ordinal. ``pod`` is None if the pod does not exist."""

    action: PodAction
    ordinal: int
    pod: PodSnapshot | None


@dataclass
class StatefulPlan:
    """Steps in phases; a phase begins when the previous one has ended without an error.

    ``replaced`` is the number of pods that the last phase deletes for an update. ``waits_for_claim`` says that a claim of a deleted pod
    must be deleted before the pod can be created again.
    """

    phases: list[list[PodStep]] = field(default_factory=list)
    replaced: int = 0
    waits_for_claim: bool = False


@dataclass(frozen=True, slots=True)
class StatefulView:
    """A snapshot of a StatefulSet with its pods and claims.

    ``replicas`` has an element for each ordinal in range, None where the pod is missing. ``condemned`` has the pods out of range, highest
    ordinal first. ``claims`` has the existing claims by name.
    """

    facts: SetFacts
    replicas: Sequence[PodSnapshot | None]
    condemned: Sequence[PodSnapshot]
    claims: Mapping[str, ClaimState]
    update_revision: str
    now: datetime

    @property
    def pods(self) -> Iterator[PodSnapshot]:
        yield from (one for one in self.replicas if one is not None)
        yield from self.condemned

    def is_available(self, pod: PodSnapshot) -> bool:
        return pod.is_available(self.facts.min_ready_seconds, self.now)

    def is_unavailable(self, pod: PodSnapshot | None) -> bool:
        return pod is None or pod.terminating or not self.is_available(pod)


def sort_pods(facts: SetFacts, pods: Iterable[PodSnapshot]) -> tuple[list[PodSnapshot | None], list[PodSnapshot]]:
    """Return the pods in range by ordinal, with None for missing pods, and the pods out of range, highest ordinal first."""
    replicas: list[PodSnapshot | None] = [None] * facts.replicas
    condemned: list[tuple[int, PodSnapshot]] = []
    for pod in pods:
        ordinal = parse_name(pod.name)[1]
        if facts.has_ordinal(ordinal):
            replicas[ordinal - facts.start] = pod
        elif ordinal >= 0:
            condemned.append((ordinal, pod))
    return replicas, [pod for _, pod in sorted(condemned, key=itemgetter(0), reverse=True)]


def make_plan(view: StatefulView) -> StatefulPlan:
    """Decide the next steps of a StatefulSet.

    With the policy OrderedReady one pod changes at a time: pods are created in the order of their ordinals, each when all earlier ones are
    available, and deleted in reverse order. With the policy Parallel all pods are created and deleted together. Both policies roll out an
    update from the highest ordinal down.
    """
    plan = StatefulPlan()
    if view.facts.deleting:
        return plan
    for phase in (_replica_phase, _owner_phase, _condemned_phase, _update_phase):
        steps, blocked = phase(view, plan)
        plan.phases.append(steps)
        if blocked and not view.facts.parallel:
            break
    plan.phases = [steps for steps in plan.phases if steps]
    return plan


_Phase = tuple[list[PodStep], bool]


def _replica_phase(view: StatefulView, plan: StatefulPlan) -> _Phase:
    """Plan the creation, replacement and repair of pods in range; return the steps, and whether later phases have to wait."""
    steps: list[PodStep] = []
    for index, pod in enumerate(view.replicas):
        ordinal = view.facts.start + index
        action, blocks = _replica_action(view, ordinal, pod)
        if action is not None:
            steps.append(PodStep(action, ordinal, pod))
        elif pod is None:
            plan.waits_for_claim = True
        if blocks and not view.facts.parallel:
            return steps, True
    return steps, False


def _replica_action(view: StatefulView, ordinal: int, pod: PodSnapshot | None) -> tuple[PodAction | None, bool]:
    """Return the action on the pod with an ordinal, or None, and whether pods with higher ordinals have to wait for it."""
    if pod is None:
        return (None if _has_stale_claim(view, ordinal) else PodAction.CREATE), True
    if pod.ended:
        # A pod that succeeded is also replaced: an eviction may end containers with exit code 0.
        return (None if pod.terminating else PodAction.DELETE), True
    action = None
    if pod.phase == "Pending" and not _claims_exist(view, ordinal, pod.uid):
        action = PodAction.ENSURE_CLAIMS
    if not view.facts.parallel and (pod.terminating or pod.phase != "Running" or not view.is_available(pod)):
        return action, True
    if action is None and not (_has_identity(view.facts, pod, ordinal) and _owners_are_current(view, ordinal, pod.uid)):
        action = PodAction.REPAIR
    return action, False


def _has_stale_claim(view: StatefulView, ordinal: int) -> bool:
    """Return whether a claim still belongs to an earlier, deleted pod of the same name, with which it will be deleted."""
    if not view.facts.policy.delete_with_pod:
        return False
    pod = view.facts.ownership(ordinal, "").pod
    states = (view.claims.get(name) for name in view.facts.claim_names(ordinal))
    return any(pod.is_stale_in(state.owners) for state in states if state is not None)


def _claims_exist(view: StatefulView, ordinal: int, pod_uid: str) -> bool:
    states = [view.claims.get(name) for name in view.facts.claim_names(ordinal)]
    return all(one is not None and not one.deleting for one in states) and _owners_are_current(view, ordinal, pod_uid)


def _owners_are_current(view: StatefulView, ordinal: int, pod_uid: str) -> bool:
    if not view.facts.claim_templates:
        return True
    ownership = view.facts.ownership(ordinal, pod_uid)
    states = (view.claims.get(name) for name in view.facts.claim_names(ordinal))
    return all(ownership.is_current(one.owners) for one in states if one is not None)


def has_storage(facts: SetFacts, pod: PodSnapshot, ordinal: int) -> bool:
    """Return whether a pod's volumes use the claims from the claim templates."""
    return all(pod.claims.get(one) == claim_name(one, facts.name, ordinal) for one in facts.claim_templates)


def _has_identity(facts: SetFacts, pod: PodSnapshot, ordinal: int) -> bool:
    return pod.labels.get(NAME_LABEL) == pod.name == f"{facts.name}-{ordinal}" and has_storage(facts, pod, ordinal)


def _owner_phase(view: StatefulView, plan: StatefulPlan) -> _Phase:  # noqa: ARG001  # all phases have these parameters
    steps = [PodStep(PodAction.CORRECT_OWNERS, parse_name(pod.name)[1], pod) for pod in view.condemned]
    return [one for one in steps if one.pod is not None and not _owners_are_current(view, one.ordinal, one.pod.uid)], False


def _condemned_phase(view: StatefulView, plan: StatefulPlan) -> _Phase:  # noqa: ARG001
    if view.facts.parallel:
        return [PodStep(PodAction.DELETE, parse_name(pod.name)[1], pod) for pod in view.condemned if not pod.terminating], False
    if not view.condemned:
        return [], False
    pod = view.condemned[0]
    # The unhealthy pod with the lowest ordinal may be deleted before healthy ones; any other pod is deleted only when it is healthy.
    unhealthy = [one for one in view.condemned if view.is_unavailable(one)]
    waits = (pod.phase != "Running" or not view.is_available(pod)) and unhealthy[-1:] != [pod]
    if pod.terminating or waits:
        return [], True
    return [PodStep(PodAction.DELETE, parse_name(pod.name)[1], pod)], True


def _update_phase(view: StatefulView, plan: StatefulPlan) -> _Phase:
    """Plan the deletion of pods with another revision than the update revision, highest ordinal first, down to the partition."""
    if not view.facts.rolling:
        return [], False
    lowest = view.facts.partition or 0
    candidates = [(index, view.replicas[index]) for index in range(len(view.replicas) - 1, lowest - 1, -1)]
    limit, patient = 1, view.facts.max_unavailable is None
    if not patient:
        allowed = max(scaled_value(view.facts.max_unavailable, view.facts.replicas, up=False), 1)
        limit = allowed - sum(map(view.is_unavailable, view.replicas))
    steps: list[PodStep] = []
    for index, pod in candidates:
        if len(steps) >= limit:
            break
        if pod is not None and not pod.terminating and pod.labels.get(REVISION_LABEL) != view.update_revision:
            steps.append(PodStep(PodAction.DELETE, view.facts.start + index, pod))
        elif patient and view.is_unavailable(pod):
            break
    plan.replaced = len(steps)
    return steps, False


def make_status(view: StatefulView, plan: StatefulPlan, stateful_set: StatefulSet, current_revision: str) -> StatefulSetStatus:
    """Return the new status of a StatefulSet: the counts of pods before the plan, and the revisions.

    Args:
        view: The snapshot of the StatefulSet.
        plan: The plan for ``view``.
        stateful_set: The StatefulSet, whose generation is set as observed.
        current_revision: Name of the revision from which the update began.
    """
    pods = list(view.pods)
    ready = [one for one in pods if one.phase == "Running" and one.ready]
    revisions = [one.labels.get(REVISION_LABEL) for one in pods if not one.terminating]
    updated = revisions.count(view.update_revision)
    current = max(revisions.count(current_revision) - plan.replaced, 0)
    if view.facts.rolling and updated == len(ready) == len(pods) == view.facts.replicas:
        current_revision, current = view.update_revision, updated
    return StatefulSetStatus(
        replicas=len(pods),
        ready_replicas=len(ready) or None,
        available_replicas=sum(map(view.is_available, ready)),
        current_replicas=current or None,
        updated_replicas=updated or None,
        current_revision=current_revision,
        update_revision=view.update_revision,
        observed_generation=stateful_set.metadata.generation,
    )


def differs(old: StatefulSetStatus, new: StatefulSetStatus) -> bool:
    """Return whether a new status must be written. As upstream, a changed collision count alone is not written."""

    def counts(status: StatefulSetStatus) -> tuple[object, ...]:
        numbers = (status.replicas, status.ready_replicas, status.available_replicas, status.current_replicas, status.updated_replicas)
        return (*(number or 0 for number in numbers), status.current_revision, status.update_revision)

    return (new.observed_generation or 0) > (old.observed_generation or 0) or counts(old) != counts(new)


def seconds_until_available(facts: SetFacts, pods: Iterable[PodSnapshot], now: datetime) -> float | None:
    """Return the seconds until the next ready pod becomes available; None if no pod waits for that."""
    if not facts.min_ready_seconds:
        return None
    waits = [
        facts.min_ready_seconds - (now - pod.ready_since).total_seconds()
        for pod in pods
        if pod.ready and pod.ready_since is not None and not pod.is_available(facts.min_ready_seconds, now)
    ]
    return max(min(waits), 0.001) if waits else None
