"""Which claims may grow: bound ones whose class lets them. Source: plugin/pkg/admission/storage/persistentvolume/resize."""

from __future__ import annotations

from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.meta.kinds import GroupResource, GroupVersionResource
from kubeloop.meta.quantity import Quantity

JSONObject = dict[str, Any]

_CLAIMS = GroupResource("", "persistentvolumeclaims")
_CLASSES = GroupVersionResource("storage.k8s.io", "v1", "storageclasses")
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_UNBOUND = "Only bound persistent volume claims can be expanded"
_FIXED = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"


class ClaimExpansion:
    """Refuses a larger request of storage that nobody could fulfil."""

    resources = frozenset({_CLAIMS})

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        """Nothing is changed."""

    async def validate(self, attributes: Attributes) -> None:
        obj, old = attributes.obj, attributes.old
        if attributes.resource.gvr.group_resource != _CLAIMS or attributes.subresource or attributes.operation != "UPDATE":
            return
        if obj is None or old is None or _size(obj) <= _size(old):
            return
        if (old.get("status") or {}).get("phase") != "Bound":
            raise refusals.forbidden(_CLAIMS, attributes.name, _UNBOUND)
        name = _class_of(obj)
        if not name or name != _class_of(old) or not await self._expands(name):
            raise refusals.forbidden(_CLAIMS, attributes.name, _FIXED)

    async def _expands(self, name: str) -> bool:
        classes = self._registry.get(_CLASSES)
        found = await self._objects.get(classes, "", name) if classes else None
        return found is not None and found.obj.get("allowVolumeExpansion") is True


def _size(claim: JSONObject) -> Quantity:
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return Quantity(requests.get("storage", "0"))


def _class_of(claim: JSONObject) -> str:
    named = (claim["metadata"].get("annotations") or {}).get(_OLD_CLASS)
    return named if named is not None else (claim.get("spec") or {}).get("storageClassName") or ""
