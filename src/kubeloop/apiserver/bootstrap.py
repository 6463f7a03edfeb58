"""What is there when a server starts: system namespaces, priority classes, and the service by which pods find the server.

Source: k8s.io/kubernetes pkg/controlplane (system namespaces, kubernetes service), recorded objects of a fresh kube-apiserver.
What belongs to Kubernetes' own components besides is in ``provisioning``.
"""

from __future__ import annotations

from kubeloop.apiserver.authentication import MASTERS, User
from kubeloop.apiserver.builtin.services.ranges import ServiceRanges
from kubeloop.apiserver.object_meta import fill_new
from kubeloop.apiserver.objects import Objects, PreconditionFailed
from kubeloop.apiserver.ownership import SERVER
from kubeloop.apiserver.provisioning import provide
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.registry_store import Call, Writer
from kubeloop.apiserver.resource import ServedResource
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.types import JSONObject

SYSTEM = User("system:apiserver", (MASTERS,))

_NAMESPACES = GroupVersionResource("", "v1", "namespaces")
_PRIORITIES = GroupVersionResource("scheduling.k8s.io", "v1", "priorityclasses")
_CONFIGMAPS = GroupVersionResource("", "v1", "configmaps")
_SERVICES = GroupVersionResource("", "v1", "services")
_ENDPOINTS = GroupVersionResource("", "v1", "endpoints")
_SLICES = GroupVersionResource("discovery.k8s.io", "v1", "endpointslices")

#: Since when it is told when a token of a Secret was last used: without it, upstream's controllers never clean such Secrets up.
_LEGACY_TOKENS = "kube-apiserver-legacy-service-account-token-tracking"

_MOVABLE = "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."
_FIXED = "Used for system critical pods that must not be moved from their current node."


async def bootstrap(registry: Registry, writer: Writer, ranges: ServiceRanges, host: str, port: int, *, provision: bool = True) -> None:
    """Create what is missing; what is there already stays as it is. ``provision`` False: without what ``provisioning`` brings."""
    if provision:
        await provide(registry, writer.objects, writer.owners, writer.clock, str(ranges.cluster_ips))
    for name in ("kube-system", "kube-public", "kube-node-lease", "default"):
        await _create(registry, writer, _NAMESPACES, "", {"metadata": {"name": name}})
    for name, value, why in (("system-cluster-critical", 2_000_000_000, _MOVABLE), ("system-node-critical", 2_000_001_000, _FIXED)):
        await _create(registry, writer, _PRIORITIES, "", {"metadata": {"name": name}, "value": value, "description": why})
    await _create(registry, writer, _SERVICES, "default", _service(ranges.own_address, port))
    await _publish(registry, writer, host, port)


async def tell_of_tokens(registry: Registry, writer: Writer) -> None:
    """The day since which the use of tokens of Secrets is noted; that of the first start stays."""
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
        return  # of an earlier run
    obj = {"kind": resource.kind, "apiVersion": resource.gvk.api_version, **obj}
    call = Call(resource, namespace, name, SYSTEM, RequestContext(SYSTEM.name, SYSTEM.groups, namespace), manager=SERVER)
    await writer.create(call, obj)


async def _publish(registry: Registry, writer: Writer, host: str, port: int) -> None:
    """Where the server listens. A loopback address is what validation refuses to clients, and just what this server has."""
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
    found = await objects.get(resource, "default", "kubernetes")
    if found is None:
        fill_new(obj["metadata"], writer.clock.wall())
        scope = writer.owners.scope(resource, "")
        writer.owners.updated(scope, scope.empty, obj, SERVER)
    else:  # of an earlier run: the same object, at another port
        obj["metadata"] = dict(found.obj["metadata"])
        if obj == found.obj:
            return
    try:
        await objects.write(resource, obj, expected=found.revision if found else 0)
    except PreconditionFailed:
        return  # somebody else published at the same moment
