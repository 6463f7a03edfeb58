"""Watches of other kinds: which keys deserve a reconcile when an object of that kind changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kubeloop.cache import Head
from kubeloop.controller.triggers.predicates import Predicate
from kubeloop.meta import GroupVersion, ObjectKey, Resource, kind_info

R = TypeVar("R", bound=Resource)

#: From a state of a watched object to the keys to reconcile. Keys without a cluster get that of the event.
MapHead = Callable[[Head], Iterable[ObjectKey]]


@dataclass(frozen=True, slots=True)
class Watch(Generic[R]):
    """Reconcile what ``to`` names whenever an object of ``kind`` changes and all ``predicates`` agree.

    ``to`` is called with the new state and, for an update, with the old one too (so that what an object no longer refers to is
    reconciled as well); keys named twice are reconciled once. ``paths`` (wire names) are read into the heads that it gets:
    ``Watch(Pod, to=lambda pod: [ObjectKey("", "", pod.value("spec.nodeName"))], paths=["spec.nodeName"])``.
    """

    kind: type[R]
    to: MapHead
    predicates: tuple[Predicate, ...] = ()
    paths: tuple[str, ...] = ()


def to_same_name(head: Head) -> list[ObjectKey]:
    """The object of the same namespace and name."""
    return [ObjectKey("", head.namespace, head.name)]


def to_controller(owner: type[Resource], *, namespaced: bool = True) -> MapHead:
    """The object of kind ``owner`` that controls the changed one: group and kind must agree, the version need not (behaviour R217).

    ``namespaced`` is the scope of ``owner``: an owner of a namespaced object lives in its namespace or in none.
    """
    gvk = kind_info(owner).gvk

    def keys(head: Head) -> list[ObjectKey]:
        reference = head.controller
        if reference is None or reference.kind != gvk.kind or _group(reference.api_version) != gvk.group:
            return []
        return [ObjectKey("", head.namespace if namespaced else "", reference.name)]

    return keys


def _group(api_version: str) -> str | None:
    try:
        return GroupVersion.parse(api_version).group
    except ValueError:
        return None
