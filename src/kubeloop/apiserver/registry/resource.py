"""A served resource: the data that the server needs to serve it, for built-in and custom resources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.endpoints.tables.layout import TableColumn
from kubeloop.meta.errors import KubeloopError
from kubeloop.meta.kinds import GroupKind, GroupResource, GroupVersionKind, GroupVersionResource
from kubeloop.schema import TypeSchema
from kubeloop.types import JSONObject

#: Storage folder of a resource in upstream, if it is not its name.
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
    """Raised if ``obj`` is not converted to the API version ``to`` yet. The caller awaits ``Objects.convert`` and repeats the operation."""

    def __init__(self, obj: JSONObject, to: str) -> None:
        super().__init__(f"a {obj.get('kind', '')} of {obj.get('apiVersion', '')} must be converted to {to} first")
        self.obj = obj
        self.to = to


class Converter(Protocol):
    """Converts objects asynchronously, with a webhook. Versions are API versions (``GROUP/v1``)."""

    async def convert(self, objects: list[JSONObject], to: str, *, stored: bool = False) -> list[JSONObject]:
        """Return new trees in the version ``to``.

        Args:
            objects: Objects of one kind, in any versions.
            to: The API version.
            stored: The objects are unchanged from storage; the result may be changed.

        Raises:
            ApiError: The conversion failed.
        """

    def known(self, obj: JSONObject, to: str) -> JSONObject:
        """Return an earlier result of ``convert``. Raises ConversionNeeded if there is none."""


@dataclass(frozen=True, slots=True)
class ServedResource:
    """A resource in one version.

    ``storage`` is the kind in storage; None means the kind of this version. ``convert(obj, version)`` returns the object in another version
    (``group/version`` if ``storage_resource`` is set) without changing ``obj``. If a webhook converts, ``converter`` is set instead.
    """

    gvr: GroupVersionResource
    kind: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...]
    schema: TypeSchema
    #: Returns the strategy, always the same object. Its modules are imported at the first call.
    strategy_source: Callable[[], Strategy]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    storage: GroupVersionKind | None = None
    #: The resource under which objects are stored, if it has another group (core and events.k8s.io Events share storage).
    storage_resource: GroupResource | None = None
    list_kind: str = ""
    scale: ScalePaths | None = None
    columns: tuple[TableColumn, ...] = ()
    custom: bool = False
    served: bool = True
    deprecation_warning: str = ""
    convert: Callable[[JSONObject, str], JSONObject] | None = None
    converter: Converter | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    gvk: GroupVersionKind = field(init=False, repr=False, compare=False)
    #: Key prefix in storage: ``/registry/GROUP/RESOURCE/`` (``core`` for the core group).
    storage_prefix: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        owner = self.storage_resource or self.gvr.group_resource
        # Computed once, because each request reads them many times.
        object.__setattr__(self, "gvk", GroupVersionKind(self.gvr.group, self.gvr.version, self.kind))
        object.__setattr__(self, "storage_prefix", f"/registry/{owner.group or 'core'}/{owner.resource}/")

    @property
    def strategy(self) -> Strategy:
        return self.strategy_source()

    @property
    def stored_group(self) -> str:
        """Group of the stored kind, which error messages name."""
        return (self.storage_resource or self.gvr.group_resource).group

    @property
    def stored_kind(self) -> GroupKind:
        """The kind under which objects are validated."""
        return GroupKind(self.stored_group, self.kind)

    def upstream_key(self, namespace: str, name: str, *, dry_run: bool = False) -> str:
        """Return the key under which upstream stores an object, for error messages. Keys of dry runs have no prefix."""
        owner = self.storage_resource or self.gvr.group_resource
        folder = _UPSTREAM_FOLDERS.get(owner, f"{owner.group}/{owner.resource}" if self.custom else owner.resource)
        return "/".join(("" if dry_run else "/registry", folder, *([namespace] if namespace else ()), name))
