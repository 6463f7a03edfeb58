"""Mappings from a changed object to the keys to reconcile: by name, owner, label, field or index, or by a custom function.

A mapping reads heads only, so nothing is decoded. ``bind`` passes the controller's kind to it at the start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kubeloop.cache import Head, Lister
from kubeloop.meta import GroupVersion, KubeloopError, ObjectKey, Resource, kind_info

#: Maps a state of a watched object to the keys to reconcile; sync or async. Keys without a cluster get that of the event.
MapHead = Callable[[Head], Iterable[ObjectKey] | Awaitable[Iterable[ObjectKey]]]


class MappingError(KubeloopError):
    """A mapping returned something other than keys; the message names the controller and the watched kind, and says what to do."""


@dataclass(frozen=True, slots=True)
class MapTarget:
    """The kind that is reconciled: whether it is namespaced, and the lister of its cache."""

    namespaced: bool
    lister: Lister[Any]


class MapFunc(ABC):
    """Mapping that depends on the reconciled kind. ``paths`` are read into the heads of the watched kind.

    Example:
        >>> class ToFirstOwner(MapFunc):
        ...     def bind(self, target: MapTarget) -> MapHead:
        ...         return lambda head: [ObjectKey("", head.namespace, owner.name) for owner in head.owner_references[:1]]
    """

    paths: tuple[str, ...] = ()

    @abstractmethod
    def bind(self, target: MapTarget) -> MapHead:
        """Return the mapping function. Called once for each start of the controller.

        Raises:
            KubeloopError: the mapping cannot work with this target; the message says why.
        """


def to_same_name(head: Head) -> list[ObjectKey]:
    """Map to the object with the same namespace and name."""
    return [ObjectKey("", head.namespace, head.name)]


def to_owner(owner: type[Resource], *, namespaced: bool = True, every: bool = False) -> Callable[[Head], list[ObjectKey]]:
    """Return a mapping to the object of kind ``owner`` that controls the changed object, or with ``every`` to all its owners of that kind.

    Group and kind must be equal, the version need not be. ``namespaced``: ``owner`` is a namespaced kind, so the owner is in the namespace
    of the changed object.
    """
    # Behaviour R217.
    gvk = kind_info(owner).gvk

    def keys(head: Head) -> list[ObjectKey]:
        return [
            ObjectKey("", head.namespace if namespaced else "", reference.name)
            for reference in head.owner_references
            if (every or reference.controller) and reference.kind == gvk.kind and _group(reference.api_version) == gvk.group
        ]

    return keys


def to_controller(owner: type[Resource], *, namespaced: bool = True) -> Callable[[Head], list[ObjectKey]]:
    """Return a mapping to the object of kind ``owner`` that controls the changed object; see ``to_owner``."""
    return to_owner(owner, namespaced=namespaced)


@dataclass(frozen=True, slots=True)
class to_label(MapFunc):  # noqa: N801  # used like to_owner, which is a function
    """Mapping to the object whose name is the value of a label of the changed object, if it has the label.

    The object is in the same namespace, or in the namespace that the label ``namespace_label`` names.

    Example:
        >>> from kubeloop.controller import Controller, WatchedKind
        >>> class Scaler(Controller[Deployment], watches=[WatchedKind(Pod, to=to_label("app"))]):
        ...     async def reconcile(self, deployment: Deployment) -> None: ...
    """

    label: str
    namespace_label: str = ""

    def bind(self, target: MapTarget) -> MapHead:
        def keys(head: Head) -> list[ObjectKey]:
            name = head.labels.get(self.label)
            if not name:
                return []
            namespace = head.labels.get(self.namespace_label, "") if self.namespace_label else head.namespace
            return [ObjectKey("", namespace if target.namespaced else "", name)]

        return keys


class to_field(MapFunc):  # noqa: N801  # used like to_owner, which is a function
    """Mapping to the objects whose names are the value at a path of the changed object (``spec.targetRef.name``; with ``[*]`` several).

    The objects are in the same namespace, or in the namespace at ``namespace_path``.

    Example:
        >>> from kubeloop.controller import Controller, WatchedKind
        >>> class Scaler(Controller[Deployment], watches=[WatchedKind(ConfigMap, to=to_field("data.deployment"))]):
        ...     async def reconcile(self, deployment: Deployment) -> None: ...
    """

    def __init__(self, path: str, namespace_path: str = "") -> None:
        self.path = path
        self.namespace_path = namespace_path
        self.paths = (path, namespace_path) if namespace_path else (path,)

    def bind(self, target: MapTarget) -> MapHead:
        def keys(head: Head) -> list[ObjectKey]:
            namespace = head.namespace
            if not target.namespaced:
                namespace = ""
            elif self.namespace_path:
                namespace = str(head.value(self.namespace_path) or "")
            return [ObjectKey("", namespace, name) for name in _texts(head.value(self.path))]

        return keys


class to_index(MapFunc):  # noqa: N801  # used like to_owner, which is a function
    """Mapping to the objects that refer to the changed object: those with its name in an index of the controller's own kind.

    If the controller's kind is namespaced, only its objects in the namespace of the changed object count, unless the changed object is
    cluster-scoped or ``anywhere`` is set.

    Example:
        >>> from kubeloop.controller import Controller, WatchedKind
        >>> indexes = {Pod: {"claim": "spec.volumes[*].secret.secretName"}}
        >>> class Checker(Controller[Pod], indexes=indexes, watches=[WatchedKind(Secret, to=to_index("claim"))]):
        ...     async def reconcile(self, pod: Pod) -> None: ...
    """

    def __init__(self, index: str, *, anywhere: bool = False) -> None:
        self.index = index
        self.anywhere = anywhere

    def bind(self, target: MapTarget) -> MapHead:
        target.lister.heads_by_index(self.index, "")  # a missing index is detected now rather than at the first event

        def keys(head: Head) -> list[ObjectKey]:
            heads = target.lister.heads_by_index(self.index, head.name)
            same_namespace = not self.anywhere and bool(head.namespace) and target.namespaced
            return [ObjectKey("", one.namespace, one.name) for one in heads if not same_namespace or one.namespace == head.namespace]

        return keys


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, tuple | list) else (value,)
    return [one for one in values if isinstance(one, str) and one]


def _group(api_version: str) -> str | None:
    try:
        return GroupVersion.parse(api_version).group
    except ValueError:
        return None
