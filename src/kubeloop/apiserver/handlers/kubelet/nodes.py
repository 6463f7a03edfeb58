"""Look-ups for connections to kubelets: pods, their containers, and the address of a node's kubelet from the Node's status.

Source: k8s.io/kubernetes pkg/kubelet/client (NodeConnectionInfoGetter); kube-apiserver --kubelet-preferred-address-types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.endpoints import api_errors
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.types import JSONObject

PODS = GroupVersionResource("", "v1", "pods")


async def find(scope: RequestScope, gvr: GroupVersionResource, namespace: str, name: str) -> JSONObject | None:
    """Return a stored object, which the caller must not change, or None if there is none.

    Args:
        scope: The scope of the request.
        gvr: The resource of the object.
        namespace: The namespace of the object. Empty: the resource is cluster-scoped.
        name: The name of the object.
    """
    resource = scope.services.registry.get(gvr)
    found = await scope.services.objects.get(resource, namespace, name) if resource is not None else None
    return found.obj if found is not None else None


async def pod_of(scope: RequestScope, name: str) -> JSONObject:
    """Return a stored pod.

    Raises:
        NotFound: The pod does not exist.
    """
    found = await find(scope, PODS, scope.namespace, name)
    if found is None:
        raise api_errors.not_found(PODS.group_resource, name)
    return found


def container_of(pod: JSONObject, container_name: str) -> str:
    """Return the name of the requested container, or of the only container if the request names none.

    Raises:
        BadRequest: There is no such container; or the request names none, and the pod has not exactly one.
    """
    name, spec = pod["metadata"]["name"], pod.get("spec") or {}
    containers = spec.get("containers") or []
    known = [one["name"] for kind in ("initContainers", "containers", "ephemeralContainers") for one in spec.get(kind) or []]
    if container_name:
        if container_name not in known:
            raise api_errors.bad_request(f"container {container_name} is not valid for pod {name}")
        return container_name
    if len(containers) == 1:
        return str(containers[0]["name"])
    if not containers:
        raise api_errors.bad_request(f"a container name must be specified for pod {name}")
    raise api_errors.bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(known)}]")


NODES = GroupVersionResource("", "v1", "nodes")

_ADDRESS_TYPES = ("Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP")
_DEFAULT_PORT = 10250
#: Kubelets that declare this speak WebSocket themselves (KEP-4006); for others the server speaks SPDY.
_WEBSOCKETS = "ExtendWebSocketsToKubelet"
#: Prefix of ``nodeInfo.containerRuntimeVersion`` of simulated nodes.
_SIMULATED = "kubeloop://"


@dataclass(frozen=True, slots=True)
class Kubelet:
    """The address of a kubelet.

    ``websockets`` says whether it accepts the WebSocket protocols; if not, the server translates them to SPDY.
    """

    host: str
    port: int
    websockets: bool


async def kubelet_of(scope: RequestScope, node: str) -> Kubelet:
    """Return the kubelet of a node.

    Raises:
        NotFound: There is no such node; the error names the request's resource, as upstream.
        ApiError: 500: the node has no usable address; 501: the node is simulated and names no kubelet.
    """
    found = await find(scope, NODES, "", node)
    if found is None:
        raise api_errors.not_found(scope.resource.gvr.group_resource, node)
    status: dict[str, Any] = found.get("status") or {}
    port = _port(status)
    if _is_simulated(status):
        raise api_errors.not_implemented(
            f"commands and connections on the simulated node {node}, whose pods have no containers; "
            f'ScriptedKubelet(cluster, node="{node}") of kubeloop.testing serves them (docs/testing.md), or name a kubelet of your own '
            "in the node's status.daemonEndpoints"
        )
    addresses = status.get("addresses") or []
    host = next((one.get("address", "") for kind in _ADDRESS_TYPES for one in addresses if one.get("type") == kind), None)
    if host is None:
        shown = " ".join(f"{{{one.get('type', '')} {one.get('address', '')}}}" for one in addresses)
        raise api_errors.internal(f"no preferred addresses found; known addresses: [{shown}]")
    return Kubelet(host, port if port > 0 else _DEFAULT_PORT, _WEBSOCKETS in (status.get("declaredFeatures") or ()))


async def is_simulated(scope: RequestScope, node: str) -> bool:
    """Return whether the node exists, runs no containers, and names no kubelet."""
    found = await find(scope, NODES, "", node)
    return found is not None and _is_simulated(found.get("status") or {})


def _is_simulated(status: dict[str, Any]) -> bool:
    return not _port(status) and str((status.get("nodeInfo") or {}).get("containerRuntimeVersion")).startswith(_SIMULATED)


def _port(status: dict[str, Any]) -> int:
    return ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or 0
