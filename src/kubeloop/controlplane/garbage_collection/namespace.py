"""Namespace controller: deletes the content of terminating namespaces, then removes their finalizer.

Source: Kubernetes pkg/controller/namespace/deletion/namespaced_resources_deleter.go and status_condition_utils.go.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import msgspec

from kubeloop.api.core.v1 import Namespace, NamespaceCondition
from kubeloop.client import DeleteOptions
from kubeloop.client.discovery import ApiResource
from kubeloop.codec import to_dict
from kubeloop.controller import Controller, Result
from kubeloop.meta import KubeloopError, MethodNotAllowed, NotFound, PartialObject, Resource, Unstructured

FINALIZER = "kubernetes"
#: Maximum number of resources that are deleted concurrently. A namespace has some forty resources.
_AT_ONCE = 8
_PODS = ("", "pods")
#: First and longest delay in seconds until remaining objects are checked again: no event reports the removal of the last finalizer.
_FIRST_LOOK, _LONGEST_LOOK = 0.2, 15.0


@dataclass(slots=True)
class _Remains:
    """The remaining objects of a namespace, by resource and by finalizer, and the resources that could not be listed."""

    objects: Counter[str] = field(default_factory=Counter)
    finalizers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    undiscovered: str = ""
    #: Only pods were deleted and counted, because some remain.
    pods_only: bool = False

    @property
    def nothing(self) -> bool:
        return not self.objects and not self.failures and not self.undiscovered


class _State(NamedTuple):
    """A condition of a namespace without its transition time; ``state`` True is the status ``True``."""

    kind: str
    state: bool
    reason: str
    message: str


class NamespaceController(Controller[Namespace], workers=10, name="namespace-controller"):
    """Deletes all objects of a terminating namespace, and removes the namespace's finalizer when none is left.

    Pods are deleted first; the other objects follow when no pod is left. The namespace's conditions list remaining objects and reasons,
    but not remaining pods: upstream's controller returns before it counts them.
    A resource that cannot be listed blocks the deletion: it might have objects.
    """

    async def start(self) -> None:
        self._looks: dict[str, int] = {}

    async def reconcile(self, namespace: Namespace) -> Result | None:
        name, uid = namespace.metadata.name, namespace.metadata.uid
        if namespace.metadata.deletion_timestamp is None or FINALIZER not in namespace.spec.finalizers:
            self._looks.pop(uid, None)
            return None
        remains = await self._empty(name)
        namespace = await self._report(namespace, remains)
        if remains.nothing:
            self._looks.pop(uid, None)
            await self._finalize(namespace)
            return None
        looks = self._looks[uid] = self._looks.get(uid, 0) + 1
        return Result(requeue_after=min(_FIRST_LOOK * 1.5 ** (looks - 1), _LONGEST_LOOK))

    async def _empty(self, name: str) -> _Remains:
        remains = _Remains()
        # Custom kinds may have been added since the last reconcile, and their objects would be left behind.
        self.client.mapper.forget()
        try:
            resources = await self.client.mapper.resources()
        except KubeloopError as error:
            remains.undiscovered = str(error)
            return remains
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(resource: ApiResource) -> None:
            async with gate:
                try:
                    await self._empty_one(name, resource, remains)
                except KubeloopError as error:
                    remains.failures.append(f"{_label(resource)}: {error}")

        seen: set[tuple[str, str]] = set()
        desired: list[ApiResource] = []
        for resource in resources:
            identity = _identity(resource)
            if resource.namespaced and {"list", "delete"} <= set(resource.verbs) and identity not in seen:
                seen.add(identity)
                desired.append(resource)
        # Pods are deleted first, as with upstream's OrderedNamespaceDeletion: programs need network policies and Secrets until they end.
        await asyncio.gather(*(one(resource) for resource in desired if _identity(resource) == _PODS))
        remains.pods_only = bool(remains.objects)
        if not remains.pods_only:
            await asyncio.gather(*(one(resource) for resource in desired if _identity(resource) != _PODS))
        return remains

    async def _empty_one(self, name: str, resource: ApiResource, remains: _Remains) -> None:
        gvk = resource.gvk
        cls = Unstructured.for_kind(gvk.api_version, gvk.kind, plural=resource.gvr.resource, namespaced=True)
        left = await self._list(cls, name)
        if not left:
            return
        background = DeleteOptions(propagation_policy="Background")
        if "deletecollection" in resource.verbs:
            await self.client.delete_collection(cls, namespace=name, options=background)
        else:
            for one in left:
                try:
                    await self.client.delete(cls, one.metadata.name, namespace=name, options=background)
                except NotFound:
                    continue
        left = await self._list(cls, name)
        if left:
            remains.objects[_label(resource)] += len(left)
            for one in left:
                remains.finalizers.update(one.metadata.finalizers)

    async def _list(self, cls: type[Resource], name: str) -> list[PartialObject]:
        try:
            return list(await self.client.list_metadata(cls, namespace=name))
        except (NotFound, MethodNotAllowed):
            return []  # Its definition was deleted meanwhile.

    async def _finalize(self, namespace: Namespace) -> None:
        document = to_dict(namespace)
        document["spec"]["finalizers"] = [one for one in namespace.spec.finalizers if one != FINALIZER]
        path = (await self.client.mapping(Namespace)).path(None, namespace.metadata.name, "finalize")
        try:
            await self.client.transport.request("PUT", path, body=msgspec.json.encode(document))
        except NotFound:
            return

    async def _report(self, namespace: Namespace, remains: _Remains) -> Namespace:
        """Write the conditions of a namespace if they changed; return the namespace as it is stored."""
        now = self.clock.wall().replace(microsecond=0)
        conditions = conditions_of(namespace.status.conditions, _states(remains), now)
        if conditions == namespace.status.conditions:
            return namespace
        namespace.status.conditions = conditions
        with contextlib.suppress(NotFound):
            return await self.client.update_status(namespace)
        return namespace


def _states(remains: _Remains) -> list[_State]:
    """Return all conditions for a terminating namespace, with upstream's order and texts."""
    objects = ", ".join(f"{description} has {count} resource instances" for description, count in sorted(remains.objects.items()))
    finalizers = ", ".join(f"{description} in {count} resource instances" for description, count in sorted(remains.finalizers.items()))
    failures = f"Failed to delete all resource types, {len(remains.failures)} remaining: {'; '.join(sorted(remains.failures))}"
    undiscovered = f"Discovery failed for some groups: {remains.undiscovered}"
    good = [
        _State("NamespaceDeletionDiscoveryFailure", False, "ResourcesDiscovered", "All resources successfully discovered"),
        _State("NamespaceDeletionGroupVersionParsingFailure", False, "ParsedGroupVersions", "All legacy kube types successfully parsed"),
        _State(
            "NamespaceDeletionContentFailure", False, "ContentDeleted", "All content successfully deleted, may be waiting on finalization"
        ),
        _State("NamespaceContentRemaining", False, "ContentRemoved", "All content successfully removed"),
        _State("NamespaceFinalizersRemaining", False, "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
    ]
    bad = {
        "NamespaceDeletionDiscoveryFailure": (bool(remains.undiscovered), "DiscoveryFailed", undiscovered),
        "NamespaceDeletionContentFailure": (bool(remains.failures), "ContentDeletionFailed", failures),
        "NamespaceContentRemaining": (
            bool(objects) and not remains.pods_only,
            "SomeResourcesRemain",
            f"Some resources are remaining: {objects}",
        ),
        "NamespaceFinalizersRemaining": (
            bool(finalizers) and not remains.pods_only,
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {finalizers}",
        ),
    }
    return [_State(one.kind, *bad[one.kind]) if bad.get(one.kind, (False,))[0] else one for one in good]


def conditions_of(before: list[NamespaceCondition], states: list[_State], now: datetime) -> list[NamespaceCondition]:
    """Return the new conditions of a namespace; a condition with unchanged status keeps its transition time. Other conditions stay."""
    known = {condition.type: condition for condition in before}
    fresh: list[NamespaceCondition] = []
    for kind, state, reason, message in states:
        text = "True" if state else "False"
        old = known.pop(kind, None)
        since = old.last_transition_time if old is not None and old.status == text else now
        fresh.append(NamespaceCondition(type=kind, status=text, reason=reason, message=message, last_transition_time=since))
    return [*known.values(), *fresh]


def _identity(resource: ApiResource) -> tuple[str, str]:
    return resource.gvr.group, resource.gvr.resource


def _label(resource: ApiResource) -> str:
    return f"{resource.gvr.resource}.{resource.gvr.group}"
