"""Volume claims of a StatefulSet's pods: their names and contents, and their owners according to the retention policy. No I/O.

Source: Kubernetes pkg/controller/statefulset/stateful_set_utils.go and stateful_pod_control.go; KEP-1847 (retention policy).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from kubeloop.api.apps.v1 import StatefulSet
from kubeloop.api.core.v1 import PersistentVolumeClaim
from kubeloop.cache import Owner
from kubeloop.codec import decode, to_dict
from kubeloop.meta import OwnerReference


class RetentionPolicy(NamedTuple):
    """Whether claims are deleted when their StatefulSet is deleted, and when it is scaled down."""

    delete_with_set: bool
    delete_with_pod: bool

    @classmethod
    def from_stateful_set(cls, stateful_set: StatefulSet) -> RetentionPolicy:
        """Return the retention policy of a StatefulSet; by default claims are kept."""
        policy = stateful_set.spec.persistent_volume_claim_retention_policy
        if policy is None:
            return cls(False, False)
        return cls(policy.when_deleted == "Delete", policy.when_scaled == "Delete")


class Referent(NamedTuple):
    """A StatefulSet or pod that may own a claim. A pod that does not exist has the uid ""."""

    api_version: str
    kind: str
    name: str
    uid: str

    def is_named_by(self, owner: Owner) -> bool:
        """Return whether an owner reference has the kind and the name of this object, regardless of its uid."""
        return (owner.api_version, owner.kind, owner.name) == (self.api_version, self.kind, self.name)

    def owns(self, owners: Sequence[Owner]) -> bool:
        return any(one.uid == self.uid for one in owners)

    def is_stale_in(self, owners: Sequence[Owner]) -> bool:
        """Return whether the first owner reference with this kind and name has another uid: it is to a deleted object of the same name."""
        first = next((one for one in owners if self.is_named_by(one)), None)
        return first is not None and first.uid != self.uid


class ClaimOwnership(NamedTuple):
    """A StatefulSet and one of its pods, which may own a claim. ``scaled_down`` says that the pod's ordinal is out of range."""

    stateful_set: Referent
    pod: Referent
    policy: RetentionPolicy
    scaled_down: bool

    def has_conflict(self, owners: Sequence[Owner]) -> bool:
        """Return whether another object controls the claim, or a deleted StatefulSet or pod of the same name owns it."""
        if not any(self.policy):
            return False
        for owner in owners:
            named = next((one for one in (self.stateful_set, self.pod) if one.is_named_by(owner)), None)
            if named is not None and owner.uid != named.uid:
                return True
            if named is None and owner.controller:
                return True
        return False

    def is_current(self, owners: Sequence[Owner]) -> bool:
        """Return whether the owners of a claim are those of the policy, or must not be changed."""
        if self.stateful_set.is_stale_in(owners) or self.pod.is_stale_in(owners):
            return True
        by_set, by_pod = self.stateful_set.owns(owners), self.pod.owns(owners)
        if self.has_conflict(owners):
            return not (by_set or by_pod)
        if any(one.uid in (self.stateful_set.uid, self.pod.uid) and not one.controller for one in owners):
            return False
        return (by_set, by_pod) == self._desired()

    def _desired(self) -> tuple[bool, bool]:
        """Return whether the StatefulSet must own the claim, and whether the pod must own it."""
        delete_with_set, delete_with_pod = self.policy
        return delete_with_set and not (delete_with_pod and self.scaled_down), delete_with_pod and self.scaled_down

    def corrected(self, references: Sequence[OwnerReference]) -> list[OwnerReference]:
        """Return the owner references according to the policy, in addition to those of other objects."""
        owners = [_owner(one) for one in references]
        result = [
            reference
            for reference, owner in zip(references, owners, strict=True)
            if not (self.stateful_set.is_named_by(owner) or self.pod.is_named_by(owner))
        ]
        if not self.has_conflict(owners):
            chosen = zip((self.stateful_set, self.pod), self._desired(), strict=True)
            known = {one.uid for one in result}
            result += [_controller(one) for one, desired in chosen if desired and one.uid not in known]
        return result


def _owner(reference: OwnerReference) -> Owner:
    return Owner(reference.api_version, reference.kind, reference.name, reference.uid, reference.controller)


def _controller(referent: Referent) -> OwnerReference:
    return OwnerReference(
        api_version=referent.api_version,
        kind=referent.kind,
        name=referent.name,
        uid=referent.uid,
        controller=True,
        block_owner_deletion=True,
    )


def claim_name(template: str, stateful_set: str, ordinal: int) -> str:
    """Return the name of the claim from a claim template for the pod with an ordinal."""
    return f"{template}-{stateful_set}-{ordinal}"


def claims_for(stateful_set: StatefulSet, ordinal: int) -> Iterator[PersistentVolumeClaim]:
    """Yield the claims to create for the pod with an ordinal, with every field of their templates and the labels of the selector."""
    metadata, spec = stateful_set.metadata, stateful_set.spec
    for document in to_dict(stateful_set)["spec"].get("volumeClaimTemplates") or ():
        own: dict[str, Any] = document["metadata"]
        labels = {**(own.get("labels") or {}), **spec.selector.match_labels}
        name = claim_name(own["name"], metadata.name, ordinal)
        changed = {**own, "name": name, "namespace": metadata.namespace, "labels": labels}
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": changed, "spec": document.get("spec") or {}}
        yield decode(PersistentVolumeClaim, msgspec.json.encode(body))
