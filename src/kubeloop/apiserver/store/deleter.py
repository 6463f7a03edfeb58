"""Deletions: preconditions, grace periods, finalizers, and the propagation to dependents.

Source: k8s.io/apiserver pkg/registry/rest/delete.go (BeforeDelete), pkg/registry/generic/registry/store.go (deletionFinalizersFor
GarbageCollection), Kubernetes documentation "Finalizers", "Garbage Collection".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from kubeloop.apiserver.admission import NAMESPACES
from kubeloop.apiserver.admission.chain import attributes_of
from kubeloop.apiserver.registry.object_meta import timestamp
from kubeloop.apiserver.registry.objects import PreconditionFailed, StoredObject
from kubeloop.apiserver.registry.options import DeleteParameters
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.store.writer import Writer
from kubeloop.endpoints import api_errors
from kubeloop.merge.go_text import copy_tree
from kubeloop.meta.kinds import GroupResource
from kubeloop.meta.time import parse_time
from kubeloop.types import JSONObject

#: Resources for which upstream checks preconditions first, with another error text.
_PLAIN_PRECONDITIONS = (NAMESPACES, GroupResource("apiextensions.k8s.io", "customresourcedefinitions"))

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"


@dataclass(frozen=True, slots=True)
class DeletionResult:
    """The result of a deletion.

    ``gone`` is False if the object still exists because of a grace period or finalizers. ``obj`` is its new state, or its last state.
    """

    obj: JSONObject
    gone: bool
    stored: StoredObject | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """The steps of a deletion. ``obj`` is the object with its deletion marks; it is written first if ``marked``."""

    obj: JSONObject
    marked: bool
    gone: bool


class Deleter:
    """Deletes objects of any resource as Kubernetes does: at once, or by marking them until finalizers and grace period have ended."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def delete(self, write: WriteRequest, options: DeleteParameters, *, admit: bool = True) -> DeletionResult:
        """Delete an object.

        Args:
            write: The write request.
            options: Options of the deletion.
            admit: False: admission has already allowed the deletion.

        Returns:
            Whether the object is gone, and its state.

        Raises:
            NotFound: The object does not exist.
            Conflict: A precondition failed.
            Invalid: The object cannot be deleted.
            ApiError: Admission rejects the deletion.
        """
        write = replace(write, options=options.tree())
        try:
            return await self._delete(write, options, admit=admit)
        finally:
            await write.finish()

    async def _delete(self, write: WriteRequest, options: DeleteParameters, *, admit: bool) -> DeletionResult:
        objects = self._writer.objects
        while True:
            current = await objects.get(write.resource, write.namespace, write.name)
            if current is None:
                raise api_errors.not_found(write.resource.gvr.group_resource, write.name)
            self.check_preconditions(write, options, current)
            if admit:
                await self._writer.admission.mutate(attributes_of(write, "DELETE", None, current.obj))
            if _is_under_way(write.resource, current.obj, options):
                return DeletionResult(current.obj, gone=False, stored=None if write.dry_run else current)
            if admit:
                await self._writer.admission.validate(attributes_of(write, "DELETE", None, current.obj))
            plan = self._plan(write.resource, current.obj, options)
            if write.dry_run:
                return DeletionResult(plan.obj, plan.gone)
            try:
                if plan.gone:
                    return await self._remove(write, plan, current)
                if not plan.marked:
                    return DeletionResult(current.obj, gone=False, stored=current)
                stored = await objects.write(write.resource, plan.obj, expected=current.revision)
                return DeletionResult(stored.obj, gone=False, stored=stored)
            except PreconditionFailed:
                continue

    async def _remove(self, write: WriteRequest, plan: _Plan, current: StoredObject) -> DeletionResult:
        """Remove the object. Its changed state is written first, so that watches see both states, as with a kube-apiserver."""
        objects = self._writer.objects
        if plan.marked:
            current = await objects.write(write.resource, plan.obj, expected=current.revision)
        revision = await objects.remove(current)
        metadata = {**current.obj["metadata"], "resourceVersion": str(revision)}
        return DeletionResult({**current.obj, "metadata": metadata}, gone=True)

    @staticmethod
    def check_preconditions(write: WriteRequest, options: DeleteParameters, current: StoredObject) -> None:
        """Check the preconditions of a deletion. Raises Conflict if they name another uid or resourceVersion than the object has."""
        metadata = current.obj["metadata"]
        if write.resource.gvr.group_resource in _PLAIN_PRECONDITIONS:
            for field, requested, own in (
                ("UID", options.uid, metadata["uid"]),
                ("ResourceVersion", options.resource_version, metadata["resourceVersion"]),
            ):
                if requested is not None and requested != own:
                    reason = f"Precondition failed: {field} in precondition: {requested}, {field} in object meta: {own}"
                    raise api_errors.conflict(write.resource.gvr.group_resource, write.name, reason)
            return
        reason = ""
        if options.uid is not None and options.uid != metadata["uid"]:
            reason = (
                f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']}). "
                "The object might have been deleted and then recreated"
            )
        elif options.resource_version is not None and options.resource_version != metadata["resourceVersion"]:
            reason = (
                f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion in record "
                f"({metadata['resourceVersion']}). The object might have been modified"
            )
        if reason:
            # Upstream names the kind here, not the resource.
            raise api_errors.conflict(GroupResource(write.resource.stored_group, write.resource.kind), write.name, reason)

    def _plan(self, resource: ServedResource, old: JSONObject, options: DeleteParameters) -> _Plan:
        # Stored objects do not change, so the parts that the deletion leaves alone need no copy.
        obj = {**old, "metadata": copy_tree(old["metadata"])}
        metadata = obj["metadata"]
        first = not metadata.get("deletionTimestamp")
        if first:
            resource.strategy.begin_deletion(obj)
        if resource.gvr.group_resource == NAMESPACES and (first or obj["spec"].get("finalizers")):
            return self._plan_namespace(obj, options, first=first)
        finalizers = finalizers_for(resource, metadata.get("finalizers") or [], options)
        changed = finalizers != (metadata.get("finalizers") or [])
        if changed:
            metadata["finalizers"] = finalizers
            if not finalizers:
                del metadata["finalizers"]
        graceful = resource.strategy.default_grace is not None
        begun = first and bool(metadata.get("deletionTimestamp"))  # the strategy has marked the object itself
        marks = first and not begun and bool(finalizers)
        marked = self._mark_graceful(resource, obj, options) if graceful else self._mark(metadata, first=marks) or begun
        gone = not finalizers and not (graceful and metadata.get("deletionGracePeriodSeconds"))
        return _Plan(obj, marked or changed, gone)

    def _plan_namespace(self, obj: JSONObject, options: DeleteParameters, *, first: bool) -> _Plan:
        """Plan the deletion of a namespace: it terminates at first, and is removed when ``spec.finalizers`` is empty (/finalize)."""
        metadata = obj["metadata"]
        if first:
            metadata["deletionTimestamp"] = timestamp(self._writer.clock.wall())
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
            finalizers = _namespace_finalizers(metadata.pop("finalizers", None) or [], options)
            if finalizers:
                metadata["finalizers"] = finalizers
        return _Plan(obj, first, gone=False)

    def _mark(self, metadata: JSONObject, *, first: bool) -> bool:
        """Mark an object without grace period whose finalizers delay its removal."""
        if not first:
            return False
        metadata["deletionTimestamp"] = timestamp(self._writer.clock.wall())
        metadata["deletionGracePeriodSeconds"] = 0
        _increment_generation(metadata)
        return True

    def _mark_graceful(self, resource: ServedResource, obj: JSONObject, options: DeleteParameters) -> bool:
        """Set or shorten the grace period. A later deletion never extends it."""
        metadata = obj["metadata"]
        now = self._writer.clock.wall()
        grace = options.grace_period
        before = metadata.get("deletionGracePeriodSeconds")
        if metadata.get("deletionTimestamp"):
            if not before or grace is None:
                return False
            # The grace period begins with the first deletion.
            grace = 1 if grace < 0 else grace
            ends = parse_time(metadata["deletionTimestamp"]) + timedelta(seconds=grace - before)
            metadata["deletionTimestamp"] = timestamp(max(ends, now))
            metadata["deletionGracePeriodSeconds"] = 1 if grace and ends < now else grace
            return True
        default = resource.strategy.default_grace
        assert default is not None
        seconds = grace_period_of(default(obj), grace, obj)
        metadata["deletionTimestamp"] = timestamp(now + timedelta(seconds=seconds))
        metadata["deletionGracePeriodSeconds"] = seconds
        _increment_generation(metadata)
        return True


def _is_under_way(resource: ServedResource, obj: JSONObject, options: DeleteParameters) -> bool:
    """Return whether an earlier deletion ends at least as soon. This deletion then has no effect, and admission is not called."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp"):
        return False
    if resource.gvr.group_resource == NAMESPACES:
        return bool((obj.get("spec") or {}).get("finalizers"))
    before = metadata.get("deletionGracePeriodSeconds")
    if resource.strategy.default_grace is None or not before:
        return False
    requested = options.grace_period
    return requested is None or (1 if requested < 0 else requested) >= before


def grace_period_of(default: int, requested: int | None, obj: JSONObject) -> int:
    """Return the grace period in seconds: the requested period, or else the object's default.

    It is 0 for pods that never ran or have ended, as in upstream's pod strategy.
    """
    seconds = default if requested is None else requested
    if seconds < 0:
        seconds = 1
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
        return 0
    return seconds


def finalizers_for(resource: ServedResource, present: list[str], options: DeleteParameters) -> list[str]:
    """Return the finalizers of an object with those by which the garbage collector orphans or deletes dependents."""
    orphan = _orphans(resource, present, options)
    foreground = _foreground(present, options)
    stored = [name for name in present if name not in (ORPHAN, FOREGROUND)]
    if orphan:
        stored.append(ORPHAN)
    if foreground:
        stored.append(FOREGROUND)
    return present if sorted(stored) == sorted(present) else stored


def _orphans(resource: ServedResource, present: list[str], options: DeleteParameters) -> bool:
    if options.orphan_dependents is not None:
        return options.orphan_dependents
    if options.propagation_policy is not None:
        return options.propagation_policy == "Orphan"
    return ORPHAN in present or (FOREGROUND not in present and resource.strategy.default_propagation == "orphan")


def _foreground(present: list[str], options: DeleteParameters) -> bool:
    if options.orphan_dependents:
        return False
    if options.propagation_policy is not None:
        return options.propagation_policy == "Foreground"
    return options.orphan_dependents is None and FOREGROUND in present


def _namespace_finalizers(present: list[str], options: DeleteParameters) -> list[str]:
    """Return the finalizers of a deleted namespace. Unlike in ``finalizers_for``, ``orphanDependents: false`` means foreground deletion."""
    if options.orphan_dependents is not None:
        finalizers = {ORPHAN: options.orphan_dependents, FOREGROUND: not options.orphan_dependents}
    elif options.propagation_policy is not None:
        finalizers = {ORPHAN: options.propagation_policy == "Orphan", FOREGROUND: options.propagation_policy == "Foreground"}
    else:
        return present
    return [
        *(name for name in present if finalizers.get(name, True)),
        *(name for name in finalizers if finalizers[name] and name not in present),
    ]


def _increment_generation(metadata: JSONObject) -> None:
    """Increase the generation, for kinds that have one, because a deletion changes the desired state."""
    if metadata.get("generation"):
        metadata["generation"] += 1
