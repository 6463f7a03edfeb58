"""The interface of admission plug-ins and the chain that runs them. Admission changes or rejects writes after authorization and decoding.

``table`` has the names and the order of the plug-ins.
Source: Kubernetes documentation, "Admission Control"; k8s.io/apiserver pkg/admission.
"""

from __future__ import annotations

import copy
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.registry.write_request import View, WriteRequest
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import User
from kubeloop.endpoints.metrics_text import Histogram
from kubeloop.meta.errors import ApiError
from kubeloop.meta.field_error import FieldError
from kubeloop.meta.kinds import GroupResource, GroupVersionKind, GroupVersionResource
from kubeloop.meta.status import StatusCause
from kubeloop.types import JSONObject

_SECONDS = (0.005, 0.025, 0.1, 0.5, 1, 2.5)


class AdmissionMetrics:
    """Histogram of the duration of admission, by operation, result and step (``admit`` or ``validate``)."""

    def __init__(self) -> None:
        self.steps: dict[tuple[str, str, str], Histogram] = {}

    def step(self, operation: str, step: str, seconds: float, *, rejected: bool) -> None:
        """Observe one step of admission.

        Args:
            operation: CREATE, UPDATE, DELETE or CONNECT.
            step: ``admit`` for mutating plug-ins, ``validate`` for validating ones.
            seconds: Duration of the step.
            rejected: Whether a plug-in rejected the write.
        """
        key = (operation, "true" if rejected else "false", step)
        histogram = self.steps.get(key)
        if histogram is None:
            histogram = self.steps[key] = Histogram(_SECONDS)
        histogram.counts[bisect_left(_SECONDS, seconds)] += 1
        histogram.sum += seconds


@dataclass(slots=True)
class Reinvocation:
    """State of the mutating plug-ins of one write.

    A plug-in sets ``requested`` to request a second run, in which ``again`` is True. Plug-ins store their data in ``state``.
    """

    requested: bool = False
    again: bool = False
    state: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Attributes:
    """One operation of a write request, as admission plug-ins see it.

    ``operation`` is CREATE, UPDATE, DELETE or CONNECT. Mutating plug-ins may change ``obj`` (None for DELETE) in place. ``options`` is the
    CreateOptions, UpdateOptions or DeleteOptions of the request. ``kind`` is the kind of ``obj`` if it differs from the kind of the
    resource (Scale, Binding).

    A plug-in appends callbacks to ``after`` (called when the write is stored or rejected) and to ``settling`` (awaited at that time, before
    the response), texts for the client to ``warnings``, and errors that it detects while it mutates to ``findings``. The response lists
    these errors before the errors of validation.
    """

    operation: str
    request: WriteRequest
    obj: JSONObject | None
    old: JSONObject | None
    options: JSONObject | None = None
    kind: GroupVersionKind | None = None
    reinvocation: Reinvocation = field(default_factory=Reinvocation)

    @property
    def gvk(self) -> GroupVersionKind:
        """The kind of ``obj``."""
        return self.kind or self.request.resource.gvk

    @property
    def resource(self) -> ServedResource:
        """The resource that is written."""
        return self.request.resource

    @property
    def subresource(self) -> str:
        """The subresource that is written; empty for the object itself."""
        return self.request.subresource

    @property
    def namespace(self) -> str:
        """The namespace of the request; empty for a cluster-scoped resource."""
        return self.request.namespace

    @property
    def name(self) -> str:
        """Name of the object; empty if the request deletes a collection."""
        return "" if self.request.of_collection else self.request.name

    @property
    def user(self) -> User:
        """The user who sent the request."""
        return self.request.user

    @property
    def dry_run(self) -> bool:
        """Whether the request is a dry run."""
        return self.request.dry_run

    @property
    def warnings(self) -> list[str]:
        """Texts that the client gets as Warning headers."""
        return self.request.warnings

    @property
    def findings(self) -> list[FieldError]:
        """Field errors that mutating plug-ins have detected."""
        return self.request.findings

    @property
    def after(self) -> list[Callable[[], None]]:
        """Callbacks to call when the write is stored or rejected."""
        return self.request.after

    @property
    def settling(self) -> list[Callable[[], Awaitable[None]]]:
        """Coroutine functions to await when the write is stored or rejected, before the response."""
        return self.request.settling

    @property
    def audit_annotations(self) -> dict[str, str]:
        """Annotations for the audit events of the request, by key."""
        return self.request.audit_annotations


def attributes_of(request: WriteRequest, operation: str, obj: JSONObject | None, old: JSONObject | None) -> Attributes:
    """Return the attributes of one operation of a request, with the options of its verb.

    Args:
        request: The write.
        operation: CREATE, UPDATE, DELETE or CONNECT.
        obj: The new object; None for DELETE.
        old: The stored object; None for CREATE.
    """
    return Attributes(operation, request, obj, old, options_of(request, operation))


def options_of(request: WriteRequest, operation: str) -> JSONObject:
    """Return the CreateOptions, UpdateOptions or DeleteOptions of ``request``."""
    return {"kind": f"{operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1", **request.options}


class Plugin(Protocol):
    """An admission plug-in. Both methods raise an ApiError to reject the write."""

    async def mutate(self, attributes: Attributes) -> None: ...

    async def validate(self, attributes: Attributes) -> None: ...


@runtime_checkable
class ResourcePlugin(Protocol):
    """A plug-in that runs only for the resources in ``resources``."""

    resources: frozenset[GroupResource]


#: Number of resources for which the chain caches its plug-ins. It is bounded because custom resources come and go.
_MOST_KEPT = 4096


class Admission:
    """The chain of admission plug-ins. All mutating steps run before the validation of the object, all validating steps after it.

    If a mutating plug-in requests it, all mutating steps run again, because later plug-ins may have changed the object.
    """

    def __init__(self, plugins: Sequence[Plugin] = ()) -> None:
        self.plugins = list(plugins)
        self.metrics = AdmissionMetrics()
        self._by_resource: dict[GroupVersionResource, list[Plugin]] = {}

    async def mutate(self, attributes: Attributes) -> None:
        """Run the mutating step of all plug-ins."""
        with self._measured(attributes, "admit"):
            await self._mutate(attributes)

    async def _mutate(self, attributes: Attributes) -> None:
        plugins = self.plugins_for(attributes.resource)
        for plugin in plugins:
            await plugin.mutate(attributes)
        if attributes.reinvocation.requested:
            attributes.reinvocation.again = True
            for plugin in plugins:
                await plugin.mutate(attributes)

    async def mutate_view(self, attributes: Attributes, view: View) -> None:
        """Run the mutating step on a view of the object, such as a Scale, and apply the changes to the object.

        ``attributes`` are those of the object itself.
        """
        assert attributes.obj is not None
        obj, shown = attributes.obj, _viewed(attributes, view)
        before = copy.deepcopy(shown.obj)
        await self.mutate(shown)
        if shown.obj is not None and shown.obj != before:
            view.keep(obj, shown.obj)

    async def validate(self, attributes: Attributes, view: View | None = None) -> None:
        """Run the validating step of all plug-ins. ``view`` is the view of the object that the client wrote, such as a Scale."""
        shown = attributes if view is None else _viewed(attributes, view)
        with self._measured(attributes, "validate"):
            for plugin in self.plugins_for(attributes.resource):
                await plugin.validate(shown)

    @contextmanager
    def _measured(self, attributes: Attributes, step: str) -> Iterator[None]:
        began, rejected = time.perf_counter(), True
        try:
            yield
            rejected = False
        finally:
            self.metrics.step(attributes.operation, step, time.perf_counter() - began, rejected=rejected)

    def plugins_for(self, resource: ServedResource) -> list[Plugin]:
        """Return the plug-ins for writes of a resource, in order."""
        gvr = resource.gvr
        plugins = self._by_resource.get(gvr)
        if plugins is None:
            if len(self._by_resource) >= _MOST_KEPT:
                self._by_resource.clear()
            name = gvr.group_resource
            plugins = [one for one in self.plugins if not isinstance(one, ResourcePlugin) or name in one.resources]
            self._by_resource[gvr] = plugins
        return plugins


def _viewed(attributes: Attributes, view: View) -> Attributes:
    obj, old = (None if one is None else view.show(one) for one in (attributes.obj, attributes.old))
    return replace(attributes, obj=obj, old=old, kind=view.kind)


# Errors of plug-ins. Source: k8s.io/apiserver pkg/admission/errors.go.


def new_forbidden(attributes: Attributes, why: str, *, unnamed: bool = False) -> ApiError:
    """Return a Forbidden error that names the object.

    ``unnamed`` shows generateName instead of the generated name, which upstream has not generated at this point.
    """
    name = attributes.name
    if not name:
        metadata = (attributes.obj or {}).get("metadata") or {}
        order = ("generateName", "name") if unnamed else ("name", "generateName")
        name = next((metadata[one] for one in order if metadata.get(one)), "Unknown")
    return api_errors.forbidden(attributes.resource.gvr.group_resource, name, why)


def join_messages(messages: Iterable[str]) -> str:
    """Return several messages as one text: each message once, and more than one in brackets."""
    texts = list(dict.fromkeys(messages))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


# NamespaceLifecycle. Source: k8s.io/apiserver plugin/namespace/lifecycle.


NAMESPACES = GroupResource("", "namespaces")
_REVIEWS = GroupResource("authorization.k8s.io", "localsubjectaccessreviews")
_IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


class NamespaceLifecycle:
    """Rejects writes in namespaces that do not exist, new objects in namespaces that terminate, and the deletion of system namespaces."""

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        is_namespace = attributes.resource.gvr.group_resource == NAMESPACES
        if attributes.operation == "DELETE":
            if is_namespace and attributes.name in _IMMORTAL:
                raise api_errors.forbidden(NAMESPACES, attributes.name, "this namespace may not be deleted")
            return
        if is_namespace or not attributes.namespace or attributes.operation not in ("CREATE", "UPDATE"):
            return
        if attributes.resource.gvr.group_resource == _REVIEWS:
            return  # An access review may name any namespace.
        namespaces = self._registry.get(GroupVersionResource("", "v1", "namespaces"))
        if namespaces is None:
            return
        stored = await self._objects.get(namespaces, "", attributes.namespace)
        if stored is None:
            raise api_errors.not_found(NAMESPACES, attributes.namespace)
        if attributes.operation == "CREATE" and (stored.obj.get("status") or {}).get("phase") == "Terminating":
            raise self._terminating(attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Do nothing: this plug-in only mutates."""

    @staticmethod
    def _terminating(attributes: Attributes) -> Exception:
        namespace = attributes.namespace
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        message = f"namespace {namespace} is being terminated"
        cause = StatusCause(reason="NamespaceTerminating", message=message, field="metadata.namespace")
        metadata = (attributes.obj or {}).get("metadata", {})
        # Upstream has not generated a name at this point.
        name = attributes.name or metadata.get("generateName") or metadata.get("name") or "Unknown"
        return api_errors.forbidden(attributes.resource.gvr.group_resource, name, why, [cause])
