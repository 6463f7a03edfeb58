"""Admission: what may change or refuse a write after it was authorized and decoded.

Here: the chain and the namespace lifecycle. Other plug-ins: ``builtin.admission``, ``webhooks``.
Source: Kubernetes documentation, "Admission Control"; k8s.io/apiserver pkg/admission/plugin/namespace/lifecycle.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kubeloop.apiserver import refusals
from kubeloop.apiserver.authentication import User
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.resource import ServedResource
from kubeloop.meta.field_error import FieldError
from kubeloop.meta.kinds import GroupResource, GroupVersionKind, GroupVersionResource
from kubeloop.meta.status import StatusCause

JSONObject = dict[str, Any]


@dataclass(slots=True)
class Reinvocation:
    """One run of the mutating plug-ins, and the second one that a plug-in may ask for by ``wanted``. ``kept`` is what plug-ins remember."""

    wanted: bool = False
    again: bool = False
    kept: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Attributes:
    """One write. ``operation`` is CREATE, UPDATE, DELETE or CONNECT; ``obj`` (None for DELETE) may be changed in place by who mutates.

    A plug-in adds to ``after`` what is to be called once the write is stored or refused, and to ``warnings`` what the client is told.
    What it finds wrong with the object while it mutates goes to ``findings``, and is told before what validation finds.
    ``options`` is the CreateOptions, UpdateOptions or DeleteOptions of the request; ``kind`` that of ``obj`` where it is not the
    resource's own (Scale, Binding).
    """

    operation: str
    resource: ServedResource
    subresource: str
    namespace: str
    name: str
    obj: JSONObject | None
    old: JSONObject | None
    user: User
    dry_run: bool
    after: list[Callable[[], None]] = field(default_factory=list)
    options: JSONObject | None = None
    kind: GroupVersionKind | None = None
    warnings: list[str] = field(default_factory=list)
    findings: list[FieldError] = field(default_factory=list)
    reinvocation: Reinvocation = field(default_factory=Reinvocation)

    @property
    def gvk(self) -> GroupVersionKind:
        """The kind of ``obj``."""
        return self.kind or self.resource.gvk


class View(Protocol):
    """A subresource that shows an object as another kind (Scale): that is what admission sees of a write through it."""

    kind: GroupVersionKind

    def show(self, obj: JSONObject) -> JSONObject:
        """A fresh tree of ``kind``."""

    def keep(self, obj: JSONObject, shown: JSONObject) -> None:
        """Change ``obj`` as ``shown`` was changed."""


class Plugin(Protocol):
    """Both methods raise an ApiError to refuse."""

    async def mutate(self, attributes: Attributes) -> None: ...

    async def validate(self, attributes: Attributes) -> None: ...


class Admission:
    """Runs its plug-ins in order: all mutate before the object is validated, all validate afterwards.

    Where one that mutates asks for it, all mutate once more: what came after it may have changed what it looked at.
    """

    def __init__(self, plugins: Sequence[Plugin] = ()) -> None:
        self.plugins = list(plugins)

    async def mutate(self, attributes: Attributes) -> None:
        for plugin in self.plugins:
            await plugin.mutate(attributes)
        if attributes.reinvocation.wanted:
            attributes.reinvocation.again = True
            for plugin in self.plugins:
                await plugin.mutate(attributes)

    async def mutate_view(self, attributes: Attributes, view: View) -> None:
        """The same for a write through ``view``, whose attributes are those of the object itself."""
        assert attributes.obj is not None
        obj, shown = attributes.obj, _viewed(attributes, view)
        before = copy.deepcopy(shown.obj)
        await self.mutate(shown)
        if shown.obj is not None and shown.obj != before:
            view.keep(obj, shown.obj)

    async def validate(self, attributes: Attributes, view: View | None = None) -> None:
        """``view``: as in ``mutate_view``."""
        shown = attributes if view is None else _viewed(attributes, view)
        for plugin in self.plugins:
            await plugin.validate(shown)


def _viewed(attributes: Attributes, view: View) -> Attributes:
    obj, old = (None if one is None else view.show(one) for one in (attributes.obj, attributes.old))
    return replace(attributes, obj=obj, old=old, kind=view.kind)


NAMESPACES = GroupResource("", "namespaces")
_REVIEWS = GroupResource("authorization.k8s.io", "localsubjectaccessreviews")
_IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


class NamespaceLifecycle:
    """No content in namespaces that do not exist, none new in those that end; the system's namespaces stay."""

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        is_namespace = attributes.resource.gvr.group_resource == NAMESPACES
        if attributes.operation == "DELETE":
            if is_namespace and attributes.name in _IMMORTAL:
                raise refusals.forbidden(NAMESPACES, attributes.name, "this namespace may not be deleted")
            return
        if is_namespace or not attributes.namespace or attributes.operation not in ("CREATE", "UPDATE"):
            return
        if attributes.resource.gvr.group_resource == _REVIEWS:
            return  # whether somebody may do something can be asked of any namespace
        namespaces = self._registry.get(GroupVersionResource("", "v1", "namespaces"))
        if namespaces is None:
            return
        found = await self._objects.get(namespaces, "", attributes.namespace)
        if found is None:
            raise refusals.not_found(NAMESPACES, attributes.namespace)
        if attributes.operation == "CREATE" and (found.obj.get("status") or {}).get("phase") == "Terminating":
            raise self._terminating(attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""

    @staticmethod
    def _terminating(attributes: Attributes) -> Exception:
        namespace = attributes.namespace
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        message = f"namespace {namespace} is being terminated"
        cause = StatusCause(reason="NamespaceTerminating", message=message, field="metadata.namespace")
        metadata = (attributes.obj or {}).get("metadata", {})
        # Upstream has not generated a name by now.
        name = attributes.name or metadata.get("generateName") or metadata.get("name") or "Unknown"
        return refusals.forbidden(attributes.resource.gvr.group_resource, name, why, [cause])
