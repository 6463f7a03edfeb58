"""One served resource: everything the pipeline must know to serve it, whether built in or defined by a CRD."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.endpoints.tables.layout import Column
from kubeloop.meta.errors import KubeloopError
from kubeloop.meta.kinds import GroupKind, GroupResource, GroupVersionKind, GroupVersionResource
from kubeloop.schema import TypeSchema
from kubeloop.types import JSONObject

#: Where upstream stores objects of a resource, if not under its name.
_UPSTREAM_FOLDERS = {
    GroupResource("", "endpoints"): "services/endpoints",
    GroupResource("", "nodes"): "minions",
    GroupResource("", "replicationcontrollers"): "controllers",
    GroupResource("", "services"): "services/specs",
    GroupResource("apiextensions.k8s.io", "customresourcedefinitions"): "apiextensions.k8s.io/customresourcedefinitions",
    GroupResource("apiregistration.k8s.io", "apiservices"): "apiregistration.k8s.io/apiservices",
    GroupResource("networking.k8s.io", "ingresses"): "ingress",
}


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """JSON paths (``.spec.replicas``) of a scale subresource; ``selector`` may be empty."""

    spec_replicas: str
    status_replicas: str
    selector: str = ""


class ConversionNeeded(KubeloopError):
    """``obj`` is not converted to the API version ``to`` yet: call ``Objects.convert``, then repeat the operation."""

    def __init__(self, obj: JSONObject, to: str) -> None:
        super().__init__(f"a {obj.get('kind', '')} of {obj.get('apiVersion', '')} must be converted to {to} first")
        self.obj = obj
        self.to = to


class Converter(Protocol):
    """Converts by asking somebody else, so that it takes time. Versions are API versions (``GROUP/v1``)."""

    async def convert(self, objects: list[JSONObject], to: str, *, stored: bool = False) -> list[JSONObject]:
        """Fresh trees. ``stored``: they come from storage as they are, and may be changed. Raises ApiError."""

    def known(self, obj: JSONObject, to: str) -> JSONObject:
        """What ``convert`` gave before. Raises ConversionNeeded."""


@dataclass(frozen=True, slots=True)
class ServedResource:
    """A resource in one version.

    ``storage`` names the version whose encoding is stored (None: this one). ``convert(obj, version)`` gives the object in that version of
    the group (``group/version`` where ``storage_resource`` is set), without changing ``obj``; ``converter`` is in its place where
    somebody else converts.
    """

    gvr: GroupVersionResource
    kind: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...]
    schema: TypeSchema
    #: Gives the strategy, the same one at every call; what it takes to make it is loaded then.
    strategy_source: Callable[[], Strategy]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    storage: GroupVersionKind | None = None
    #: Resources that share storage under another group (core and events.k8s.io Events) name the group resource that owns it.
    storage_resource: GroupResource | None = None
    list_kind: str = ""
    scale: ScalePaths | None = None
    columns: tuple[Column, ...] = ()
    custom: bool = False
    served: bool = True
    deprecation_warning: str = ""
    convert: Callable[[JSONObject, str], JSONObject] | None = None
    converter: Converter | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    gvk: GroupVersionKind = field(init=False, repr=False, compare=False)
    #: Key prefix in storage, ending in a slash: ``/registry/GROUP/RESOURCE/`` (the core group as ``core``).
    storage_prefix: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        owner = self.storage_resource or self.gvr.group_resource
        # Computed once: each request reads them many times.
        object.__setattr__(self, "gvk", GroupVersionKind(self.gvr.group, self.gvr.version, self.kind))
        object.__setattr__(self, "storage_prefix", f"/registry/{owner.group or 'core'}/{owner.resource}/")

    @property
    def strategy(self) -> Strategy:
        return self.strategy_source()

    @property
    def stored_group(self) -> str:
        """The group of the kind that is stored, in whose name objects are refused."""
        return (self.storage_resource or self.gvr.group_resource).group

    @property
    def stored_kind(self) -> GroupKind:
        """The kind in whose type objects are validated."""
        return GroupKind(self.stored_group, self.kind)

    def upstream_key(self, namespace: str, name: str, *, dry_run: bool = False) -> str:
        """The key under which upstream stores an object, which some of its messages name; those of dry runs lack the prefix."""
        owner = self.storage_resource or self.gvr.group_resource
        folder = _UPSTREAM_FOLDERS.get(owner, f"{owner.group}/{owner.resource}" if self.custom else owner.resource)
        return "/".join(("" if dry_run else "/registry", folder, *([namespace] if namespace else ()), name))
