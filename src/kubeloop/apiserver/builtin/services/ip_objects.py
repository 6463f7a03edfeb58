"""IPAddress objects: one for each cluster IP, named like it, which tells whose it is; others may hold addresses by objects of their own.

Source: pkg/registry/core/service/ipallocator/ipallocator.go (MultiCIDRServiceAllocator); KEP-1880.
"""

from __future__ import annotations

import contextlib
import ipaddress
from typing import Any

from kubeloop.apiserver.object_meta import fill_new
from kubeloop.apiserver.objects import Objects, StaleWrite
from kubeloop.apiserver.ownership import SERVER, Owners
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.resource import ServedResource
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.timing import Clock

JSONObject = dict[str, Any]

_SERVICES = GroupVersionResource("", "v1", "services")
_ADDRESSES = GroupVersionResource("networking.k8s.io", "v1", "ipaddresses")
_LABEL = "ipaddress.kubernetes.io/"
_MANAGER = "ipallocator.k8s.io"


class AddressObjects:
    """Follows the services: who takes an address has it settled once his service is written, refused or gone."""

    def __init__(self, registry: Registry, objects: Objects, clock: Clock) -> None:
        self._registry = registry
        self._objects = objects
        self._owners = Owners(registry, clock)
        self._clock = clock

    async def mend(self) -> None:
        """Settle what a server that was killed between two writes left: a service without its object, or an object without its service."""
        services, resource = self._registry.get(_SERVICES), self._registry.get(_ADDRESSES)
        if services is None or resource is None:
            return
        wanted: dict[str, tuple[str, str]] = {}
        for one in await self._objects.all(services):
            whose = one["metadata"]["namespace"], one["metadata"]["name"]
            wanted.update((address, whose) for address in one["spec"].get("clusterIPs") or () if address != "None")
        present: dict[str, tuple[str, str]] = {}
        for one in await self._objects.all(resource):
            if (one["metadata"].get("labels") or {}).get(f"{_LABEL}managed-by") == _MANAGER:
                parent = (one.get("spec") or {}).get("parentRef") or {}
                present[one["metadata"]["name"]] = parent.get("namespace", ""), parent.get("name", "")
        for address, whose in {*wanted.items()} ^ {*present.items()}:
            await self.settle(address, *whose)

    async def settle(self, address: str, namespace: str, name: str) -> None:
        """Make the object of ``address`` where the stored service has it, and remove it where it has it no longer."""
        services, resource = self._registry.get(_SERVICES), self._registry.get(_ADDRESSES)
        if services is None or resource is None:
            return
        service = await self._objects.get(services, namespace, name)
        has = service is not None and address in (service.obj["spec"].get("clusterIPs") or ())
        current = await self._objects.get(resource, "", address)
        with contextlib.suppress(StaleWrite):  # somebody else has just settled it
            if has and current is None:
                await self._objects.write(resource, self._made(resource, address, namespace, name), expected=0)
            elif not has and current is not None:
                parent = (current.obj.get("spec") or {}).get("parentRef") or {}
                if _is_of_service(parent) and (parent.get("namespace"), parent.get("name")) == (namespace, name):
                    await self._objects.remove(current)

    def _made(self, resource: ServedResource, address: str, namespace: str, name: str) -> JSONObject:
        labels = {f"{_LABEL}ip-family": f"IPv{ipaddress.ip_address(address).version}", f"{_LABEL}managed-by": _MANAGER}
        obj: JSONObject = {
            "kind": resource.kind,
            "apiVersion": resource.gvk.api_version,
            "metadata": {"name": address, "labels": labels},
            "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}},
        }
        fill_new(obj["metadata"], self._clock.wall())
        scope = self._owners.scope(resource, "")
        self._owners.updated(scope, scope.empty, obj, SERVER)
        return obj


def _is_of_service(parent: JSONObject) -> bool:
    return (parent.get("group", ""), parent.get("resource")) == ("", "services")
