"""The registry of served resources: the built-in ones, and those of CustomResourceDefinitions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.meta.kinds import GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the registry.

    ``after`` was added if ``before`` is None, ``before`` was removed if ``after`` is None; else ``after`` replaced ``before``.
    """

    before: ServedResource | None
    after: ServedResource | None


class Registry:
    """Served resources by group, version and resource, in the order of discovery.

    Guarantees
        When ``add``, ``replace`` or ``remove`` returns, listeners have run and new requests see the change.
        ``revision`` increases with every change, so that documents built from the registry can be cached by it.

    Not guaranteed
        Running requests need not see a change: each uses the ``ServedResource`` of its start.
    """

    def __init__(self) -> None:
        self._resources: dict[GroupVersionResource, ServedResource] = {}
        self._by_kind: dict[GroupVersionKind, ServedResource] = {}
        self._versions: dict[str, list[str]] = {}
        self._listeners: list[Callable[[Change], None]] = []
        self.revision = 0

    def add(self, resource: ServedResource) -> None:
        """Add a resource.

        Raises:
            ValueError: Its group, version and resource are already served.
        """
        if resource.gvr in self._resources:
            raise ValueError(f"{resource.gvr} is served already")
        self._set(resource)
        self._changed(Change(None, resource))

    def replace(self, resource: ServedResource) -> None:
        """Replace the resource with the same group, version and name; add it if there is none."""
        before = self._resources.get(resource.gvr)
        if before is not None:
            self._by_kind.pop(before.gvk, None)
        self._set(resource)
        self._changed(Change(before, resource))

    def remove(self, gvr: GroupVersionResource) -> None:
        """Remove a resource. Its watches end; its objects stay in storage. Does nothing if it is not served."""
        before = self._resources.pop(gvr, None)
        if before is None:
            return
        self._by_kind.pop(before.gvk, None)
        if not any(one.group == gvr.group and one.version == gvr.version for one in self._resources):
            versions = self._versions[gvr.group]
            versions.remove(gvr.version)
            if not versions:
                del self._versions[gvr.group]
        self._changed(Change(before, None))

    def on_change(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call ``listener`` synchronously with every change. Returns a function that removes it. Listeners must not raise."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def get(self, gvr: GroupVersionResource) -> ServedResource | None:
        """Return a served resource, or None if it is not served."""
        result = self._resources.get(gvr)
        return result if result is not None and result.served else None

    def kind(self, gvk: GroupVersionKind) -> ServedResource | None:
        """Return the resource of a kind, or None. Kinds of subresources (Scale) have no resource."""
        return self._by_kind.get(gvk)

    def has_group(self, group: str) -> bool:
        """Return whether a group is served."""
        return group in self._versions

    def has_kind(self, kind: GroupKind) -> bool:
        """Return whether a kind is served in any version."""
        return any(gvk.group == kind.group and gvk.kind == kind.kind for gvk in self._by_kind)

    def groups(self) -> list[str]:
        """Return the served groups, in the order in which they were added; the core group is the empty string."""
        return list(self._versions)

    def versions(self, group: str) -> list[str]:
        """Return the versions of a group in the order in which they were added, or an empty list for an unknown group."""
        return list(self._versions.get(group, ()))

    def resources(self, group_version: GroupVersion | None = None) -> list[ServedResource]:
        """Return all served resources, or those of one group version, in order."""
        return [one for gvr, one in self._resources.items() if one.served and (group_version is None or gvr.group_version == group_version)]

    def siblings(self, resource: GroupResource) -> list[ServedResource]:
        """Return a resource in each version that the registry has, served or not."""
        return [one for gvr, one in self._resources.items() if gvr.group_resource == resource]

    def __iter__(self) -> Iterator[ServedResource]:
        return iter(self._resources.values())

    def _set(self, resource: ServedResource) -> None:
        self._resources[resource.gvr] = resource
        self._by_kind[resource.gvk] = resource
        versions = self._versions.setdefault(resource.gvr.group, [])
        if resource.gvr.version not in versions:
            versions.append(resource.gvr.version)

    def _changed(self, change: Change) -> None:
        self.revision += 1
        for listener in list(self._listeners):
            listener(change)


# Priority of API versions: v2 before v1 before v1beta2 before v1alpha1, other names last.
# Source: Kubernetes documentation "Versions in CustomResourceDefinitions", version priority.

_KUBE: Final = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STABILITY: Final = {None: 2, "beta": 1, "alpha": 0}


def by_priority(versions: Iterable[str]) -> list[str]:
    """Sort versions by priority, highest first."""
    return sorted(versions, key=_key)


def _key(version: str) -> tuple[int, int, int, int, str]:
    result = _KUBE.fullmatch(version)
    if result is None:
        return 1, 0, 0, 0, version
    return 0, -_STABILITY[result[2]], -int(result[1]), -int(result[3] or 0), version
