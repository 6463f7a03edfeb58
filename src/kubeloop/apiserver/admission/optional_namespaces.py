"""NamespaceExists and NamespaceAutoProvision, off by default. Source: plugin/pkg/admission/namespace/{exists,autoprovision}."""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.apiserver import api_errors
from kubeloop.apiserver.admission.chain import Attributes
from kubeloop.apiserver.admission.namespaces import NAMESPACES
from kubeloop.apiserver.bootstrap import SYSTEM
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.ownership import SERVER
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.registry_store import Call, Writer
from kubeloop.apiserver.resource import ServedResource
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.meta.errors import AlreadyExists
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.types import JSONObject

_NAMESPACES = GroupVersionResource("", "v1", "namespaces")


class NamespaceExists:
    """Also refuses deletions where there is no namespace."""

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        """Nothing is changed."""

    async def validate(self, attributes: Attributes) -> None:
        if attributes.operation != "CONNECT" and await _is_missing(self._registry, self._objects, attributes):
            raise api_errors.not_found(NAMESPACES, attributes.namespace)


class NamespaceAutoProvision:
    """Who creates something where there is no namespace gets one."""

    def __init__(self, registry: Registry, objects: Objects, writer: Callable[[], Writer]) -> None:
        self._registry = registry
        self._objects = objects
        self._writer = writer

    async def mutate(self, attributes: Attributes) -> None:
        if attributes.dry_run or attributes.operation != "CREATE":
            return
        resource = await _is_missing(self._registry, self._objects, attributes)
        if resource is None:
            return
        name = attributes.namespace
        obj: JSONObject = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
        call = Call(resource, "", name, SYSTEM, RequestContext(SYSTEM.name, SYSTEM.groups), manager=SERVER)
        try:
            await self._writer().create(call, obj)
        except AlreadyExists:
            return

    async def validate(self, attributes: Attributes) -> None:
        """Nothing is left to check."""


async def _is_missing(registry: Registry, objects: Objects, attributes: Attributes) -> ServedResource | None:
    """The resource of namespaces when the one of a write is missing; None when all is well."""
    if not attributes.namespace or attributes.resource.gvr.group_resource == NAMESPACES:
        return None
    resource = registry.get(_NAMESPACES)
    if resource is None or await objects.get(resource, "", attributes.namespace) is not None:
        return None
    return resource
