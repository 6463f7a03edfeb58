"""Writes what is missing of the objects that Kubernetes keeps in every cluster. What is there stays as it is, changed or not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from kubeloop.apiserver.object_meta import fill_new, timestamp
from kubeloop.apiserver.objects import Objects, StaleWrite
from kubeloop.apiserver.provisioning import api_services, flow_control, roles
from kubeloop.apiserver.provisioning.addresses import default_service_cidr
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.resource import ServedResource
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.timing import Clock

JSONObject = dict[str, Any]


async def provide(registry: Registry, objects: Objects, clock: Clock, service_cidr: str) -> None:
    """The objects are known to be valid and complete, and written as they are: neither defaulted, nor admitted, nor validated."""
    now = timestamp(clock.wall())
    async with asyncio.TaskGroup() as writes:  # storage may gather writes that come together
        for gvr, obj in _objects(registry, now, service_cidr):
            resource = registry.get(gvr)
            if resource is not None:
                fill_new(obj["metadata"], clock.wall())
                writes.create_task(_write(objects, resource, obj))


def _objects(registry: Registry, now: str, service_cidr: str) -> Iterator[tuple[GroupVersionResource, JSONObject]]:
    served = ((one.gvr.group, one.gvr.version) for one in registry if not one.custom)
    for service in api_services.local_api_services(served, now):
        yield GroupVersionResource(api_services.GROUP, "v1", "apiservices"), service
    yield GroupVersionResource("networking.k8s.io", "v1", "servicecidrs"), default_service_cidr(service_cidr, now)
    for resource, obj in flow_control.default_flow_control(now):
        yield GroupVersionResource(flow_control.GROUP, "v1", resource), obj
    for resource, obj in roles.default_roles():
        yield GroupVersionResource(roles.GROUP, "v1", resource), obj


async def _write(objects: Objects, resource: ServedResource, obj: JSONObject) -> None:
    try:
        await objects.write(resource, {"kind": resource.kind, "apiVersion": resource.gvk.api_version, **obj}, expected=0)
    except StaleWrite:
        return  # it is there
