"""RBAC permissions that the controllers of a program need, derived from the declarations of their classes.

Source: Kubernetes documentation, "Using RBAC Authorization"; verbs of informers, owner references and events as client-go requires them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from kubeloop.controller.builder.controller import ControllerBase
from kubeloop.controller.builder.declaration import WRITE_VERBS
from kubeloop.meta import Resource, UnknownKind, kind_info

READ = ("get", "list", "watch")
_STATUS_VERBS = ("get", "patch", "update")
_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """Verbs on one resource, for all names. ``resource`` may have a subresource (``foos/status``). ``why`` is the reason, for people.

    ``namespaced``: the kind is namespaced, so that a Role can grant the permission.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    namespaced: bool = True
    why: str = ""

    def __str__(self) -> str:
        return f"{', '.join(self.verbs)} on {self.name}"

    @property
    def name(self) -> str:
        """Name of the resource: ``pods``, ``foos.example.com``, ``foos.example.com/status``."""
        plural, slash, subresource = self.resource.partition("/")
        return f"{plural}.{self.group}{slash}{subresource}" if self.group else self.resource


def permissions_of(controllers: Iterable[ControllerBase[Any] | type[ControllerBase[Any]]], *, events: bool = True) -> list[Permission]:
    """Return the permissions that the informers and writes of these controllers require, one entry for each resource, sorted.

    Informers: get, list and watch of the main kind and of kinds in ``owns``, ``watches`` and ``reads``. Kinds in ``gets``: get. Writes: the
    main kind (finalizers, annotations) with its status, its finalizers subresource where it owns children (which an API server that
    enforces blockOwnerDeletion asks for), children in ``owns``, kinds in ``writes``, and the status of kinds in ``status_writes``;
    ``write_verbs`` limits the verbs. ``events``: include events of both APIs.

    Not known
        Other requests of ``reconcile`` through the client: declare their kinds in ``writes``, ``reads`` and ``gets``.

    Raises:
        UnknownKind: only a server knows the plural or scope of a kind (``Unstructured``); the message names the controller and says what to
            do.
    """
    found = _Found()
    for controller in controllers:
        cls = controller if isinstance(controller, type) else type(controller)
        declared = cls._declaration()
        found.name = declared.name
        found.add(declared.kind, (*READ, *declared.write_verbs.get(declared.kind, ("patch", "update"))))
        if any(field.encode_name == "status" for field in msgspec.structs.fields(declared.kind)):
            found.add(declared.kind, _STATUS_VERBS, "/status")
        if declared.owns:
            found.add(declared.kind, ("update",), "/finalizers")
        for owned in declared.owns:
            # Children are applied, updated, and deleted when they are no longer desired.
            found.add(owned.kind, (*READ, *declared.write_verbs.get(owned.kind, WRITE_VERBS)))
        for watch in declared.watches:
            found.add(watch.kind, READ)
        for kind in declared.reads:
            found.add(kind, READ)
        for kind in declared.gets:
            found.add(kind, ("get",))
        for kind in declared.writes:
            found.add(kind, ("get", *declared.write_verbs.get(kind, WRITE_VERBS)))
        for kind in declared.status_writes:
            found.add(kind, _STATUS_VERBS, "/status")
    permissions = found.permissions()
    if events and permissions:
        recording = ("create", "patch", "update")
        permissions += [Permission(group, "events", recording, why="events") for group in ("", "events.k8s.io")]
    return sorted(permissions)


def kinds_of(controllers: Iterable[ControllerBase[Any] | type[ControllerBase[Any]]]) -> list[type[Resource]]:
    """Return all kinds that these controllers declare, each once, their main kinds first."""
    declared = [(one if isinstance(one, type) else type(one))._declaration() for one in controllers]
    kinds = [one.kind for one in declared]
    for one in declared:
        kinds += [*(owned.kind for owned in one.owns), *(watch.kind for watch in one.watches), *one.reads, *one.gets, *one.writes]
        kinds += one.status_writes
    return list(dict.fromkeys(kinds))


def lease_permissions(*, sharding: bool = False) -> list[Permission]:
    """Return the permissions that leader election or sharding requires in the namespace of the Leases."""
    verbs = ("create", "delete", "get", "list", "update") if sharding else ("create", "get", "update")
    return [Permission("coordination.k8s.io", "leases", verbs, why="sharding" if sharding else "leader election")]


def rules_of(permissions: Iterable[Permission]) -> list[dict[str, list[str]]]:
    """Return the ``rules`` of a Role or ClusterRole. Resources of one group with the same verbs share a rule."""
    together: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for one in sorted(permissions):
        together.setdefault((one.group, one.verbs), []).append(one.resource)
    return [
        {"apiGroups": [group], "resources": list(dict.fromkeys(resources)), "verbs": list(verbs)}
        for (group, verbs), resources in together.items()
    ]


class _Found:
    """The permissions collected so far, by resource."""

    def __init__(self) -> None:
        self.name = ""
        self._verbs: dict[tuple[str, str, bool], set[str]] = {}
        self._why: dict[tuple[str, str, bool], list[str]] = {}

    def add(self, kind: type[Resource], verbs: Iterable[str], subresource: str = "") -> None:
        info = kind_info(kind)
        if info.plural is None or info.namespaced is None:
            raise UnknownKind(
                f'controller "{self.name}": only a server knows the plural and scope of {info.gvk}; '
                "declare a class with @custom_resource, or generate one: kubeloop generate models"
            )
        key = (info.gvk.group, f"{info.plural}{subresource}", info.namespaced)
        self._verbs.setdefault(key, set()).update(verbs)
        why = self._why.setdefault(key, [])
        if self.name not in why:
            why.append(self.name)

    def permissions(self) -> list[Permission]:
        return [
            Permission(group, resource, tuple(verb for verb in _VERBS if verb in verbs), namespaced, ", ".join(self._why[key]))
            for key, verbs in self._verbs.items()
            for group, resource, namespaced in (key,)
        ]
