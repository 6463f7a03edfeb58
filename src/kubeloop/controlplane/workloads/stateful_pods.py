"""Creates, repairs and deletes the pods of a StatefulSet and their volume claims, and records upstream's Events.

Source: Kubernetes pkg/controller/statefulset/stateful_pod_control.go.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from kubeloop.api.apps.v1 import ControllerRevision, StatefulSet
from kubeloop.api.core.v1 import PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume
from kubeloop.cache import Lister
from kubeloop.client import Client, DeleteOptions
from kubeloop.controller import EventRecorder, set_controller_reference
from kubeloop.controlplane.pod_control import pod_from
from kubeloop.controlplane.workloads.history import REVISION_LABEL, failure_text, template_of
from kubeloop.controlplane.workloads.pod_snapshots import PodSnapshot
from kubeloop.controlplane.workloads.stateful_claims import claim_name, claims_for
from kubeloop.controlplane.workloads.stateful_plan import INDEX_LABEL, NAME_LABEL, PodAction, PodStep, SetFacts
from kubeloop.meta import AlreadyExists, Conflict, KubeloopError, NotFound


@dataclass(frozen=True, slots=True)
class StatefulPodSource:
    """A StatefulSet, and its current and update revisions, from which its pods are created."""

    stateful_set: StatefulSet
    facts: SetFacts
    current: ControllerRevision
    update: ControllerRevision

    def new_pod(self, ordinal: int) -> Pod:
        """Return the pod to create for an ordinal, with every field of the template of its revision."""
        revision = self.current if self.facts.uses_current_revision(ordinal) else self.update
        pod = pod_from(template_of(revision), self.facts.name, self.stateful_set.metadata.namespace)
        self.set_identity(pod, ordinal)
        pod.metadata.labels[REVISION_LABEL] = revision.metadata.name
        pod.spec.hostname, pod.spec.subdomain = pod.metadata.name, self.stateful_set.spec.service_name or None
        set_controller_reference(self.stateful_set, pod)
        return pod

    def set_identity(self, pod: Pod, ordinal: int) -> None:
        """Set the name and identity labels of a pod, and the volumes that use its claims."""
        pod.metadata.name = f"{self.facts.name}-{ordinal}"
        pod.metadata.labels = {**pod.metadata.labels, NAME_LABEL: pod.metadata.name, INDEX_LABEL: str(ordinal)}
        names = {one: claim_name(one, self.facts.name, ordinal) for one in self.facts.claim_templates}
        if all(_claim_of(pod, volume) == claim for volume, claim in names.items()):
            return
        volumes = [
            Volume(name=volume, persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=claim))
            for volume, claim in names.items()
        ]
        pod.spec.volumes = volumes + [one for one in pod.spec.volumes if one.name not in names]


def _claim_of(pod: Pod, volume: str) -> str | None:
    sources = (one.persistent_volume_claim for one in pod.spec.volumes if one.name == volume)
    return next((source.claim_name for source in sources if source is not None), None)


class ClaimFailure(KubeloopError):
    """The claims of a pod cannot be created or updated, or are being deleted."""


class StatefulPodControl:
    """Executes the steps of a plan for one StatefulSet.

    Args:
        client: Writes pods and claims.
        events: Records Events about the StatefulSet.
        pods: Lists pods.
        claims: Lists volume claims.
        source: The StatefulSet and its revisions.
    """

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        pods: Lister[Pod],
        claims: Lister[PersistentVolumeClaim],
        source: StatefulPodSource,
    ) -> None:
        self._client = client
        self._events = events
        self._pods = pods
        self._claims = claims
        self._source = source
        self._set = source.stateful_set
        self._namespace = source.stateful_set.metadata.namespace

    async def execute(self, step: PodStep) -> None:
        """Execute one step of a plan.

        Raises:
            KubeloopError: The server refused a write; the remaining steps must not be executed.
        """
        name = f"{self._source.facts.name}-{step.ordinal}"
        if step.pod is None:
            await self._create(name, step.ordinal)
            return
        match step.action:
            case PodAction.DELETE:
                await self._delete(step.pod)
            case PodAction.REPAIR:
                await self._repair(step.pod, step.ordinal)
            case PodAction.ENSURE_CLAIMS:
                await self._create_claims(name, step.ordinal)
                await self._correct_owners_of_pod(name, step.ordinal, step.pod.uid)
            case _:
                await self._correct_owners(step.ordinal, step.pod.uid)

    async def _create(self, name: str, ordinal: int) -> None:
        try:
            await self._create_claims(name, ordinal)
        except KubeloopError as error:
            self._record("Create", name, error)
            raise
        failure: KubeloopError | None = None
        try:
            await self._client.create(self._source.new_pod(ordinal))
        except AlreadyExists:
            raise
        except KubeloopError as error:
            failure = error
        await self._correct_owners_of_pod(name, ordinal, "")
        self._record("Create", name, failure)
        if failure is not None:
            raise failure

    async def _delete(self, pod: PodSnapshot) -> None:
        try:
            with contextlib.suppress(NotFound, Conflict):  # Another pod of the same name has another uid, which conflicts.
                await self._client.delete(Pod, pod.name, namespace=self._namespace, options=DeleteOptions(uid=pod.uid))
        except KubeloopError as error:
            self._record("Delete", pod.name, error)
            raise
        self._record("Delete", pod.name, None)

    async def _repair(self, pod: PodSnapshot, ordinal: int) -> None:
        try:
            head = self._pods.head(pod.name, self._namespace)
            if head is None or head.uid != pod.uid:
                return
            changed = self._pods.decoded(head)
            before = (changed.metadata.labels, changed.spec.volumes)
            self._source.set_identity(changed, ordinal)
            if changed.spec.volumes != before[1]:
                await self._create_claims(pod.name, ordinal)
            await self._correct_owners(ordinal, pod.uid)
            if (changed.metadata.labels, changed.spec.volumes) != before:
                await self._client.update(changed)
        except KubeloopError as error:
            self._record("Update", pod.name, error)
            raise
        self._record("Update", pod.name, None)

    # ------------------------------------------------------------------------------------------------------------------- claims

    async def _create_claims(self, pod: str, ordinal: int) -> None:
        """Create the missing claims of a pod.

        Raises:
            ClaimFailure: The server refused a claim, or a claim is being deleted.
        """
        if not self._source.facts.claim_templates:
            return
        failures = []
        for claim in claims_for(self._set, ordinal):
            name = claim.metadata.name
            head = self._claims.head(name, self._namespace)
            if head is not None:
                if head.deleting:
                    failures.append(f"pvc {name} is being deleted")
                continue
            try:
                await self._client.create(claim)
            except KubeloopError as error:
                failures.append(f"failed to create PVC {name}: {failure_text(error)}")
                if not isinstance(error, AlreadyExists):
                    text = f"Create Claim {name} for Pod {pod} in StatefulSet {self._set.metadata.name} failed error: {failure_text(error)}"
                    self._events.warning(self._set, "FailedCreate", text)
            else:
                text = f"Create Claim {name} Pod {pod} in StatefulSet {self._set.metadata.name} success"
                self._events.normal(self._set, "SuccessfulCreate", text)
        if failures:
            raise ClaimFailure(_aggregate(failures))

    async def _correct_owners_of_pod(self, pod: str, ordinal: int, uid: str) -> None:
        try:
            await self._correct_owners(ordinal, uid)
        except KubeloopError as error:
            self._record("Update", pod, error)
            raise

    async def _correct_owners(self, ordinal: int, pod_uid: str) -> None:
        """Set the owners of a pod's claims according to the retention policy."""
        facts = self._source.facts
        ownership = facts.ownership(ordinal, pod_uid)
        for name in facts.claim_names(ordinal):
            head = self._claims.head(name, self._namespace)
            if head is None:
                continue
            if ownership.has_conflict(head.owner_references):
                text = (
                    f"PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, "
                    "the retention policy is ignored for this claim"
                )
                self._events.warning(self._set, "ConflictingController", text)
            if ownership.is_current(head.owner_references):
                continue
            claim = self._claims.decoded(head)
            claim.metadata.owner_references = ownership.corrected(claim.metadata.owner_references)
            try:
                await self._client.update(claim)
            except KubeloopError as error:
                raise ClaimFailure(f"could not update claim {name} for delete policy ownerRefs: {failure_text(error)}") from error

    def _record(self, verb: str, pod: str, error: KubeloopError | None) -> None:
        text = f"{verb} Pod {pod} in StatefulSet {self._set.metadata.name}"
        if error is None:
            self._events.normal(self._set, f"Successful{verb}", f"{text} successful")
        else:
            self._events.warning(self._set, f"Failed{verb}", f"{text} failed error: {failure_text(error)}")


def _aggregate(messages: Iterable[str]) -> str:
    """Return the text of several errors in the format of Go's apimachinery: without duplicates, in brackets if there are several."""
    distinct = list(dict.fromkeys(messages))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
