"""Contents of a new server: the registry of built-in resources, and the first objects such as system namespaces and default roles.

Source: k8s.io/kubernetes pkg/controlplane (system namespaces, kubernetes service), recorded objects of a fresh kube-apiserver.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from functools import cache, partial

from kubeloop.apiserver.authorization.rbac_rules import missing_rules
from kubeloop.apiserver.builtin import strategies
from kubeloop.apiserver.builtin.bootstrap.objects import (
    API_SERVICES_GROUP,
    FLOW_CONTROL_GROUP,
    ROLES_GROUP,
    default_flow_control,
    default_roles,
    local_api_services,
)
from kubeloop.apiserver.builtin.catalogue import DEPRECATIONS
from kubeloop.apiserver.builtin.conversion import convert_autoscaler, convert_event
from kubeloop.apiserver.builtin.services.ranges import ServiceRanges
from kubeloop.apiserver.ownership import SERVER, Owners
from kubeloop.apiserver.registry.object_meta import fill_new, timestamp
from kubeloop.apiserver.registry.objects import Objects, PreconditionFailed
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.apiserver.registry.write_request import WriteRequest
from kubeloop.apiserver.store.writer import Writer
from kubeloop.endpoints.access import SYSTEM
from kubeloop.meta.kinds import GroupResource, GroupVersionKind, GroupVersionResource
from kubeloop.schema import ResourceInfo, Schemas, TypeSchema
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

_EVENTS = GroupResource("", "events")
_DEFINITIONS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")


def builtin_registry(schemas: Schemas, clock: Clock, *, loopback_endpoints: bool = False) -> Registry:
    """Return a new registry of the built-in resources. Its strategies are new too, so that two servers in one process share nothing.

    Args:
        schemas: The built-in kinds.
        clock: The clock for CustomResourceDefinitions.
        loopback_endpoints: Endpoints may have loopback addresses.
    """
    registry = Registry()
    known: dict[GroupResource, Callable[[], Strategy]] = {
        **strategies(loopback_endpoints=loopback_endpoints),
        _DEFINITIONS: cache(partial(_of_definitions, clock)),
    }
    for info in schemas.resources():
        registry.add(_served(info, known[info.gvr.group_resource], schemas))
    return registry


def _of_definitions(clock: Clock) -> Strategy:
    from kubeloop.apiserver.crd.strategies import DefinitionStrategy

    return DefinitionStrategy(clock)


def _served(info: ResourceInfo, strategy_source: Callable[[], Strategy], schemas: Schemas) -> ServedResource:
    events, autoscalers = info.gvr.resource == "events", info.gvr.resource == "horizontalpodautoscalers"
    storage = GroupVersionKind("", "v1", "Event") if events else GroupVersionKind("autoscaling", "v2", info.kind) if autoscalers else None
    return ServedResource(
        gvr=info.gvr,
        kind=info.kind,
        singular=info.singular,
        namespaced=info.namespaced,
        verbs=info.verbs,
        schema=schemas.kind(info.gvk) or TypeSchema(type="object"),
        strategy_source=strategy_source,
        short_names=info.short_names,
        categories=info.categories,
        subresources=tuple(sub.name for sub in info.subresources),
        storage=storage,
        storage_resource=_EVENTS if events else None,
        list_kind=info.list_kind,
        deprecation_warning=DEPRECATIONS.get(info.gvr.group_resource, ""),
        convert=convert_event if events else convert_autoscaler if autoscalers else None,
    )


# Existing objects do not change, except that default roles and bindings get missing rules and subjects back.


# The ServiceCIDR for the server's --service-cluster-ip-range. Source: pkg/controlplane/controller/defaultservicecidr.


def default_service_cidr(cidr: str, now: str) -> JSONObject:
    """Return the ServiceCIDR ``kubernetes``. ``now`` is in RFC 3339."""
    message = "Kubernetes default Service CIDR is ready"
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": now, "reason": "", "message": message}
    return {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [cidr]}, "status": {"conditions": [ready]}}


# Reconciliation of a default role or binding that exists: missing rules and subjects are added, additional ones stay.
# An object with the annotation ``rbac.authorization.kubernetes.io/autoupdate: "false"`` does not change.
# Source: k8s.io/component-helpers auth/rbac/reconciliation.


_AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"


def is_left_alone(existing: JSONObject) -> bool:
    """Return whether the annotation of a role or binding excludes it from reconciliation."""
    return (existing["metadata"].get("annotations") or {}).get(_AUTOUPDATE) == "false"


def binds_other(existing: JSONObject, default: JSONObject) -> bool:
    """Return whether a binding refers to another role than the default. It must then be replaced, because ``roleRef`` is immutable."""
    return bool(existing.get("roleRef") != default.get("roleRef"))


def reconcile_role(existing: JSONObject, default: JSONObject) -> JSONObject:
    """Return a copy of ``existing`` in which the parts of ``default`` that it lacks are added."""
    result = copy.deepcopy(existing)
    for name in ("annotations", "labels"):
        merged = {**(default["metadata"].get(name) or {}), **(result["metadata"].get(name) or {})}
        if merged:
            result["metadata"][name] = merged
    if "roleRef" in default:
        _add(result, "subjects", [one for one in default.get("subjects") or () if one not in (existing.get("subjects") or ())])
        return result
    rights = missing_rules(existing.get("rules") or (), default.get("rules") or ())
    _add(result, "rules", [right.as_rule() for right in rights])
    selectors = _selectors(default)
    if not selectors:
        result.pop("aggregationRule", None)
    elif any(one not in _selectors(existing) for one in selectors):
        lacks = [one for one in selectors if one not in _selectors(existing)]
        result["aggregationRule"] = {"clusterRoleSelectors": [*_selectors(existing), *lacks]}
    return result


def _add(obj: JSONObject, name: str, more: list[JSONObject]) -> None:
    if more:
        obj[name] = [*(obj.get(name) or ()), *more]


def _selectors(role: JSONObject) -> list[JSONObject]:
    return list((role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ())


#: Field manager of the objects of a group, if not the server.
_MANAGERS = {FLOW_CONTROL_GROUP: "api-priority-and-fairness-config-producer-v1"}
#: Field manager that applies the status of a kind.
_STATUS_MANAGERS = {
    "flowschemas": "api-priority-and-fairness-config-consumer-v1",
    "servicecidrs": "kubernetes-service-cidr-controller",
}


async def create_component_objects(registry: Registry, objects: Objects, owners: Owners, clock: Clock, service_cidr: str) -> None:
    """Write the objects of Kubernetes' own components. They are valid and complete, so they skip defaulting, admission and validation.

    Args:
        registry: The served resources.
        objects: Objects over storage.
        owners: Field managers of objects.
        clock: The clock of the server.
        service_cidr: Address range of services.
    """
    now = timestamp(clock.wall())
    async with asyncio.TaskGroup() as writes:  # storage combines concurrent writes
        for gvr, obj in _objects(registry, now, service_cidr):
            resource = registry.get(gvr)
            if resource is not None:
                fill_new(obj["metadata"], clock.wall())
                obj = {"kind": resource.kind, "apiVersion": resource.gvk.api_version, **obj}
                writes.create_task(_create_or_replace(objects, owners, resource, obj))


def _owned(owners: Owners, resource: ServedResource, obj: JSONObject) -> JSONObject:
    """Return ``obj`` with the same managedFields as upstream."""
    scope = owners.scope(resource, "")
    applier = _STATUS_MANAGERS.get(resource.gvr.resource)
    status = obj.pop("status", None) if applier else None
    owners.updated(scope, scope.empty, obj, _MANAGERS.get(resource.gvr.group, SERVER))
    if applier is None or status is None:
        return obj
    # The apply configuration has no empty strings, but the stored condition has them.
    conditions = [{key: value for key, value in condition.items() if value != ""} for condition in status["conditions"]]
    config = {
        "kind": obj["kind"],
        "apiVersion": obj["apiVersion"],
        "metadata": {"name": obj["metadata"]["name"]},
        "status": status | {"conditions": conditions},
    }
    return {**owners.applied(owners.scope(resource, "status"), obj, config, applier, force=True), "status": status}


def _objects(registry: Registry, now: str, service_cidr: str) -> Iterator[tuple[GroupVersionResource, JSONObject]]:
    served = ((one.gvr.group, one.gvr.version) for one in registry if not one.custom)
    for service in local_api_services(served, now):
        yield GroupVersionResource(API_SERVICES_GROUP, "v1", "apiservices"), service
    yield GroupVersionResource("networking.k8s.io", "v1", "servicecidrs"), default_service_cidr(service_cidr, now)
    for resource, obj in default_flow_control(now):
        yield GroupVersionResource(FLOW_CONTROL_GROUP, "v1", resource), obj
    for resource, obj in default_roles():
        yield GroupVersionResource(ROLES_GROUP, "v1", resource), obj


async def _create_or_replace(objects: Objects, owners: Owners, resource: ServedResource, obj: JSONObject) -> None:
    default = copy.deepcopy(obj) if resource.gvr.group == ROLES_GROUP else None
    try:
        await objects.write(resource, _owned(owners, resource, obj), expected=0)
    except PreconditionFailed:
        if default is not None:
            await _reconcile(objects, owners, resource, default)


async def _reconcile(objects: Objects, owners: Owners, resource: ServedResource, default: JSONObject) -> None:
    current = await objects.get(resource, default["metadata"].get("namespace", ""), default["metadata"]["name"])
    if current is None or is_left_alone(current.obj):
        return
    if binds_other(current.obj, default):
        await objects.remove(current)
        await objects.write(resource, _owned(owners, resource, default), expected=0)
        return
    role = reconcile_role(current.obj, default)
    if role != current.obj:
        owners.updated(owners.scope(resource, ""), current.obj, role, SERVER)
        await objects.write(resource, role, expected=current.revision)


_NAMESPACES = GroupVersionResource("", "v1", "namespaces")
_PRIORITIES = GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses")
_CONFIGMAPS = GroupVersionResource("", "v1", "configmaps")
_SERVICES = GroupVersionResource("", "v1", "services")
_ENDPOINTS = GroupVersionResource("", "v1", "endpoints")
_SLICES = GroupVersionResource("discovery.k8s.io", "v1", "endpointslices")

#: ConfigMap with the date since which the server records the use of tokens of Secrets. Without it upstream's controllers never delete
#: unused tokens.
_LEGACY_TOKENS = "kube-apiserver-legacy-service-account-token-tracking"

_MOVABLE = "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."
_FIXED = "Used for system critical pods that must not be moved from their current node."


async def bootstrap(registry: Registry, writer: Writer, ranges: ServiceRanges, host: str, port: int, *, provision: bool = True) -> None:
    """Create the first objects of a cluster that are missing.

    Existing objects stay as they are, except that default roles and bindings get missing rules and subjects back.

    Args:
        registry: The served resources.
        writer: Writes the objects.
        ranges: Addresses of services.
        host: Address in the endpoints of default/kubernetes.
        port: Port in these endpoints.
        provision: Also create the objects of Kubernetes' own components (``create_component_objects``).
    """
    if provision:
        await create_component_objects(registry, writer.objects, writer.owners, writer.clock, str(ranges.cluster_ips))
    for name in ("kube-system", "kube-public", "kube-node-lease", "default"):
        await _create(registry, writer, _NAMESPACES, "", {"metadata": {"name": name}})
    for name, value, reason in (("system-cluster-critical", 2_000_000_000, _MOVABLE), ("system-node-critical", 2_000_001_000, _FIXED)):
        await _create(registry, writer, _PRIORITIES, "", {"metadata": {"name": name}, "value": value, "description": reason})
    await _create(registry, writer, _SERVICES, "default", _service(ranges.own_address, port))
    await _publish(registry, writer, host, port)


async def create_token_tracking(registry: Registry, writer: Writer) -> None:
    """Create the ConfigMap with the date since which the use of legacy tokens is recorded. An existing date stays."""
    since = {"metadata": {"name": _LEGACY_TOKENS}, "data": {"since": writer.clock.wall().strftime("%Y-%m-%d")}}
    await _create(registry, writer, _CONFIGMAPS, "kube-system", since)


def _service(address: str, port: int) -> JSONObject:
    return {
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": address,
            "clusterIPs": [address],
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
        },
    }


async def _create(registry: Registry, writer: Writer, gvr: GroupVersionResource, namespace: str, obj: JSONObject) -> None:
    resource = registry.get(gvr)
    if resource is None:
        return
    name = obj["metadata"]["name"]
    if await writer.objects.get(resource, namespace, name) is not None:
        return  # from an earlier run
    obj = {"kind": resource.kind, "apiVersion": resource.gvk.api_version, **obj}
    write = WriteRequest(resource, namespace, name, SYSTEM, manager=SERVER)
    await writer.create(write, obj)


async def _publish(registry: Registry, writer: Writer, host: str, port: int) -> None:
    """Write the endpoints of default/kubernetes. They skip validation, which does not allow loopback addresses."""
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    endpoints = {
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": host}], "ports": ports}],
    }
    slice_ = {
        "metadata": {"name": "kubernetes", "namespace": "default", "generation": 1, "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv6" if ":" in host else "IPv4",
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
        "ports": ports,
    }
    for gvr, obj in ((_ENDPOINTS, endpoints), (_SLICES, slice_)):
        resource = registry.get(gvr)
        if resource is not None:
            await _write(resource, writer, {"kind": resource.kind, "apiVersion": resource.gvk.api_version, **obj})


async def _write(resource: ServedResource, writer: Writer, obj: JSONObject) -> None:
    objects: Objects = writer.objects
    current = await objects.get(resource, "default", "kubernetes")
    if current is None:
        fill_new(obj["metadata"], writer.clock.wall())
        scope = writer.owners.scope(resource, "")
        writer.owners.updated(scope, scope.empty, obj, SERVER)
    else:  # from an earlier run: the same object with another port
        obj["metadata"] = dict(current.obj["metadata"])
        if obj == current.obj:
            return
    try:
        await objects.write(resource, obj, expected=current.revision if current else 0)
    except PreconditionFailed:
        return  # a concurrent write was first
