"""Claims for devices that others use need a namespace that is labelled for it. Source: pkg/registry/resource/utils.go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver import refusals
from kubeloop.apiserver.admission import Attributes
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.registry import Registry
from kubeloop.meta.field_error import FieldError, forbidden
from kubeloop.meta.kinds import GroupKind, GroupResource, GroupVersionResource

JSONObject = dict[str, Any]

_CLAIMS, _TEMPLATES = (GroupResource("resource.k8s.io", name) for name in ("resourceclaims", "resourceclaimtemplates"))
_LABEL = "resource.kubernetes.io/admin-access"


class AdminAccess:
    """Refuses ``adminAccess`` in namespaces without the label: of requests when they are created, of results when they are new."""

    resources = frozenset({_CLAIMS, _TEMPLATES})

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def mutate(self, attributes: Attributes) -> None:
        """Nothing is changed; a fault is told with all that validation finds."""
        attributes.findings += await self._faults(attributes)

    async def validate(self, attributes: Attributes) -> None:
        """Once more, for what was changed after."""
        faults = await self._faults(attributes)
        if faults:
            metadata = (attributes.obj or {}).get("metadata") or {}
            raise refusals.invalid(GroupKind(*attributes.resource.gvk[::2]), metadata.get("name", ""), faults)

    async def _faults(self, attributes: Attributes) -> list[FieldError]:
        path = next(_asked(attributes), None)
        if path is None or await self._is_labelled(attributes.namespace):
            return []
        return [forbidden(path, f"admin access to devices requires the `{_LABEL}: true` label on the containing namespace")]

    async def _is_labelled(self, namespace: str) -> bool:
        resource = self._registry.get(GroupVersionResource("", "v1", "namespaces"))
        found = await self._objects.get(resource, "", namespace) if resource else None
        return found is not None and (found.obj["metadata"].get("labels") or {}).get(_LABEL) == "true"


def _asked(attributes: Attributes) -> Iterator[str]:
    """Where admin access is asked for, as far as it was not granted before."""
    kind, obj = attributes.resource.gvr.group_resource, attributes.obj
    if kind not in (_CLAIMS, _TEMPLATES) or obj is None:
        return
    if attributes.operation == "CREATE":
        spec = obj.get("spec") or {}
        spec = spec.get("spec") or {} if kind == _TEMPLATES else spec
        for at, request in enumerate((spec.get("devices") or {}).get("requests") or ()):
            if (request.get("exactly") or {}).get("adminAccess"):
                # Upstream's path, of the template's spec too.
                yield f"spec.devices.requests[{at}].adminAccess"
    elif attributes.subresource == "status":
        from kubeloop.apiserver.builtin.devices.claim_status import results_of  # with the first claim: it brings CEL

        if any(one.get("adminAccess") for one in results_of((attributes.old or {}).get("status") or {})):
            return
        for at, result in enumerate(results_of(obj.get("status") or {})):
            if result.get("adminAccess"):
                yield f"status.allocation.devices.results[{at}].adminAccess"
