"""ResourceClaim controller: creates the claims of pods from templates, and releases claims whose pods have finished.

Source: Kubernetes pkg/controller/resourceclaim/controller.go; KEP-4381 (structured parameters).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from kubeloop.api.core.v1 import Pod, PodResourceClaim, PodResourceClaimStatus, PodStatus
from kubeloop.api.resource.v1 import ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate
from kubeloop.cache import Head
from kubeloop.client import DeleteOptions
from kubeloop.controller import KeyController, WatchedKind, is_controlled_by
from kubeloop.controller.builder.controller import OWNER_INDEX
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents
from kubeloop.meta import AlreadyExists, ApiError, KubeloopError, NotFound, ObjectKey, ObjectMeta, OwnerReference

#: The finalizer that the scheduler sets when it allocates a claim, so that the allocation is released before the claim is deleted.
FINALIZER = "resource.kubernetes.io/delete-protection"
#: The annotation with the name of the entry in ``spec.resourceClaims`` of the pod for which a claim was created.
POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
FIELD_MANAGER = "ResourceClaimController"
#: Maximum number of consumers of one claim.
_MOST_CONSUMERS = 256
_BASE = 57
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_ATTEMPTS = 5
#: A key with this prefix stands for a pod, any other key for a claim. No claim can have such a name.
_POD_KEY = "pod/"
_NAMED, _GENERATED, _TEMPLATE = "named-claims", "generated-claims", "claim-templates"
_CLAIMS, _STATUSES = "spec.resourceClaims", "status.resourceClaimStatuses"
#: The claim that the scheduler created for extended resources of a pod, which names it in its status only (KEP-5004).
_EXTENDED = "status.extendedResourceClaimStatus.resourceClaimName"


class ClaimNotUsable(KubeloopError):
    """A claim of a pod cannot be created or used; the message is that of an Event."""


class ResourceClaimController(
    KeyController[ResourceClaim],
    watches=[
        WatchedKind(Pod, to="keys_of_pod", paths=(_CLAIMS, _STATUSES, _EXTENDED)),
        WatchedKind(ResourceClaim, to="pods_of_claim"),
        WatchedKind(ResourceClaimTemplate, to="pods_of_template"),
    ],
    indexes={
        Pod: {
            _NAMED: f"{_CLAIMS}[*].resourceClaimName",
            _GENERATED: f"{_STATUSES}[*].resourceClaimName",
            _TEMPLATE: f"{_CLAIMS}[*].resourceClaimTemplateName",
        },
        ResourceClaim: {OWNER_INDEX: "metadata.ownerReferences[*].uid"},
    },
    workers=10,
    name="resourceclaim-controller",
):
    """Creates ResourceClaims from the templates that pods name, reserves allocated claims for pods with a node, and releases claims.

    Guarantees:
        A pod gets one claim for each entry: the name is derived from the pod's uid, so that neither a restart nor a second replica of the
        controller creates another claim.
        A reservation is removed only if its pod has finished, was replaced, or does not exist on the server.
    """

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents(component="resource_claim")]

    def keys_of_pod(self, pod: Head) -> list[ObjectKey]:
        """Return the keys of a pod and of its claims; none if it has no claims."""
        entries, extended = pod.value(_CLAIMS) or (), pod.value(_EXTENDED)
        if not entries and not extended:
            return []
        names = [one.get("resourceClaimName") for one in [*entries, *(pod.value(_STATUSES) or ())]]
        return [_key_of_pod(pod), *(ObjectKey("", pod.namespace, name) for name in [*names, extended] if name)]

    def pods_of_claim(self, claim: Head) -> list[ObjectKey]:
        pods = self.lister(Pod)
        users = pods.heads_by_index(_NAMED, claim.name) + pods.heads_by_index(_GENERATED, claim.name)
        return [_key_of_pod(pod) for pod in users if pod.namespace == claim.namespace]

    def pods_of_template(self, template: Head) -> list[ObjectKey]:
        return [
            _key_of_pod(pod) for pod in self.lister(Pod).heads_by_index(_TEMPLATE, template.name) if pod.namespace == template.namespace
        ]

    async def reconcile(self, key: ObjectKey) -> None:
        if not key.name.startswith(_POD_KEY):
            if (claim := self.lister(ResourceClaim).by_key(key)) is not None:
                await self._sync_claim(claim)
            return
        pod = self.lister(Pod).get(key.name.removeprefix(_POD_KEY), key.namespace)
        if pod is not None and pod.metadata.deletion_timestamp is None and not _is_done(pod):
            await self._create_claims(pod)
            if pod.spec.node_name:
                await self._reserve_claims(pod)

    # ----------------------------------------------------------------------------------------------------------------------- pods

    async def _create_claims(self, pod: Pod) -> None:
        """Create the missing claims of a pod, and write their names into its status."""
        names = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
        found: dict[str, str] = {}
        for entry in pod.spec.resource_claims:
            if entry.resource_claim_template_name is None or (entry.name in names and names[entry.name] is None):
                continue
            try:
                found[entry.name] = await self._claim_name(pod, entry, names.get(entry.name) or "")
            except KubeloopError as error:
                text = error.status.message if isinstance(error, ApiError) else str(error)
                self.events.warning(pod, "FailedResourceClaimCreation", f"PodResourceClaim {entry.name}: {text}")
                raise
        if any(names.get(entry) != name for entry, name in found.items()):
            statuses = [PodResourceClaimStatus(name=entry, resource_claim_name=name) for entry, name in found.items()]
            metadata = ObjectMeta(name=pod.metadata.name, namespace=pod.metadata.namespace, uid=pod.metadata.uid)
            partial = Pod(metadata=metadata, status=PodStatus(resource_claim_statuses=statuses))
            status = self.client.subresource(Pod, pod.metadata.name, "status", namespace=pod.metadata.namespace)
            await status.apply(partial, field_manager=FIELD_MANAGER, force=True)

    async def _claim_name(self, pod: Pod, entry: PodResourceClaim, known: str) -> str:
        """Return the name of the claim for an entry of ``spec.resourceClaims``; create the claim if the pod has none.

        Args:
            pod: The pod.
            entry: The entry, which names a template.
            known: The name in the pod's status; empty: none.

        Raises:
            ClaimNotUsable: The template does not exist, or other objects have the names of the claim.
        """
        owned = [one for one in self.lister(ResourceClaim).by_index(OWNER_INDEX, pod.metadata.uid) if is_controlled_by(one, pod)]
        fitting = [one.metadata.name for one in owned if one.metadata.annotations.get(POD_CLAIM) == entry.name]
        if fitting:
            return known if known in fitting else min(fitting)
        name = entry.resource_claim_template_name or ""
        template = self.lister(ResourceClaimTemplate).get(name, pod.metadata.namespace)
        if template is None:
            raise ClaimNotUsable(f'resource claim template "{name}": resourceclaimtemplate.resource.k8s.io "{name}" not found')
        for attempt in range(_ATTEMPTS):
            claim = _claim_from(template, pod, entry.name, attempt)
            try:
                return (await self.client.create(claim)).metadata.name
            except AlreadyExists:
                existing = await self.client.get(ResourceClaim, claim.metadata.name, namespace=pod.metadata.namespace)
                if is_controlled_by(existing, pod):
                    return existing.metadata.name
        raise ClaimNotUsable(f"all names for the claim {entry.name} are taken")

    async def _reserve_claims(self, pod: Pod) -> None:
        """Reserve allocated claims for a pod that has a node, if the scheduler has not reserved them.

        Raises:
            ClaimNotUsable: A claim from a template belongs to another pod.
        """
        names = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
        for entry in pod.spec.resource_claims:
            name = entry.resource_claim_name or names.get(entry.name)
            claim = self.lister(ResourceClaim).get(name, pod.metadata.namespace) if name else None
            if claim is None:
                continue
            if entry.resource_claim_name is None and not is_controlled_by(claim, pod):
                place = pod.metadata.namespace
                text = f"ResourceClaim {place}/{name} was not created for pod {place}/{pod.metadata.name} (pod is not owner)"
                raise ClaimNotUsable(text)
            reserved = claim.status.reserved_for
            if claim.status.allocation is None or len(reserved) >= _MOST_CONSUMERS or any(one.uid == pod.metadata.uid for one in reserved):
                continue
            reserved.append(ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid))
            await self.client.update_status(claim)

    # --------------------------------------------------------------------------------------------------------------------- claims

    async def _sync_claim(self, claim: ResourceClaim) -> None:
        """Remove reservations of finished pods; after the last one, remove the allocation and delete a claim created for a finished pod."""
        remaining = [one for one in claim.status.reserved_for if not await self._is_stale(claim, one)]
        if len(remaining) < len(claim.status.reserved_for):
            claim.status.reserved_for = remaining
            if not remaining and FINALIZER in claim.metadata.finalizers:
                claim.status.allocation = None
            claim = await self.client.update_status(claim)
            if claim.status.allocation is None:
                claim = await self._remove_finalizer(claim)
        elif FINALIZER in claim.metadata.finalizers and claim.metadata.deletion_timestamp is not None and not remaining:
            if claim.status.allocation is not None:
                claim.status.allocation = None
                claim = await self.client.update_status(claim)
            claim = await self._remove_finalizer(claim)
        if not remaining:
            await self._delete_unused(claim)

    async def _remove_finalizer(self, claim: ResourceClaim) -> ResourceClaim:
        if FINALIZER not in claim.metadata.finalizers:
            return claim
        claim.metadata.finalizers.remove(FINALIZER)
        return await self.client.update(claim)

    async def _is_stale(self, claim: ResourceClaim, consumer: ResourceClaimConsumerReference) -> bool:
        if consumer.api_group or consumer.resource != "pods":
            return False
        pod = self.lister(Pod).get(consumer.name, claim.metadata.namespace)
        if pod is None:
            # The cache may lag: the scheduler may just have reserved the claim for a pod that the cache does not have yet.
            try:
                pod = await self.client.get(Pod, consumer.name, namespace=claim.metadata.namespace)
            except NotFound:
                return True
        return pod.metadata.uid != consumer.uid or _is_done(pod)

    async def _delete_unused(self, claim: ResourceClaim) -> None:
        """Delete a claim that was created for a finished pod. The garbage collector deletes claims of deleted pods."""
        owner = next((one for one in claim.metadata.owner_references if one.controller and one.kind == "Pod"), None)
        pod = self.lister(Pod).get(owner.name, claim.metadata.namespace) if owner is not None else None
        if owner is None or pod is None or claim.metadata.deletion_timestamp is not None:
            return
        if pod.metadata.uid != owner.uid or _is_done(pod):
            try:
                await self.client.delete(claim, options=DeleteOptions(uid=claim.metadata.uid))
            except NotFound:
                return


def _key_of_pod(pod: Head) -> ObjectKey:
    return ObjectKey("", pod.namespace, _POD_KEY + pod.name)


def _is_done(pod: Pod) -> bool:
    """Return whether a pod has finished, or is deleted before it got a node."""
    return pod.status.phase in ("Succeeded", "Failed") or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


def _claim_from(template: ResourceClaimTemplate, pod: Pod, entry: str, attempt: int) -> ResourceClaim:
    """Return the claim for an entry of a pod. Its name looks generated, as upstream, but is derived from pod, entry and attempt."""
    prefix = f"{pod.metadata.name}-{entry}-"
    if len(prefix) > _BASE:
        length = len(prefix)
        prefix = f"{pod.metadata.name[: len(pod.metadata.name) * _BASE // length]}-{entry[: len(entry) * _BASE // length]}"
    digest = hashlib.sha256(f"{pod.metadata.uid}/{entry}/{attempt}".encode()).digest()
    suffix = "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:5])
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True)
    metadata = ObjectMeta(
        name=prefix + suffix,
        generate_name=prefix,
        namespace=pod.metadata.namespace,
        labels=dict(template.spec.metadata.labels),
        annotations={**template.spec.metadata.annotations, POD_CLAIM: entry},
        owner_references=[owner],
    )
    return ResourceClaim(metadata=metadata, spec=template.spec.spec)
