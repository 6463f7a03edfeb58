"""The subresource ``/proxy`` of pods, services and nodes, which forwards any request to their address.

Source: Kubernetes documentation, "Access Services Running on Clusters"; k8s.io/kubernetes pkg/registry/core (ResourceLocation).
Loopback and link-local addresses are forbidden, except those of process pods and their kubelets if the server has process pods.
"""

from __future__ import annotations

import asyncio
import ipaddress
import posixpath
import random
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from kubeloop.apiserver.handlers.kubelet.nodes import find, kubelet_of, pod_of
from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.endpoints import api_errors
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.meta.strconv import decimal
from kubeloop.reverseproxy.backend import PATH_SAFE, Backend
from kubeloop.reverseproxy.http import proxy_request
from kubeloop.reverseproxy.upgrade import is_upgrade, proxy_upgrade
from kubeloop.serving.answer import Reply
from kubeloop.types import JSONObject

PODS = GroupVersionResource("", "v1", "pods")
SERVICES = GroupVersionResource("", "v1", "services")
ENDPOINTS = GroupVersionResource("", "v1", "endpoints")

#: Addresses of process pods that ``kubeloop kubelet`` chooses without ``--pod-cidr``. Programs of this machine answer there only if they
#: listen on all addresses.
PROCESS_PODS = ipaddress.ip_network("127.64.0.0/10")

_SINGULAR = {"pods": "pod", "services": "service", "nodes": "node"}


async def proxy(scope: RequestScope) -> Reply:
    """Proxy a request to a pod, service or node.

    Raises:
        BadRequest: The name is malformed, or the address is forbidden.
        NotFound: There is no such object.
        ServiceUnavailable: The backend cannot be reached, or the service has no endpoint.
    """
    request = scope.request
    if "dryRun" in request.query:
        raise api_errors.bad_request("dryRun is not supported")
    resource = scope.info.resource
    scheme, name, port = _reference(scope.info.name, resource)
    if resource == "nodes":
        place = await _node(scope, scheme, name, port)
    elif resource == "pods":
        place = await _pod(scope, scheme, name, port)
    else:
        place = await _service(scope, scheme, name, port)
    plain = _path(scope.info.rest, slash=scope.info.path.endswith("/"))
    if is_upgrade(request):
        return await proxy_upgrade(request, replace(place, path=_escaped(plain)))
    if request.path.endswith("/") and not plain.endswith("/"):
        plain += "/"
    return await proxy_request(request, replace(place, path=_escaped(plain), query=request.query_string))


def _reference(text: str, resource: str) -> tuple[str, str, str]:
    """Parse ``name``, ``name:port`` or ``scheme:name:port``. Return scheme, name and port; missing parts are empty. Raises BadRequest."""
    parts = text.split(":")
    scheme, name, port = "", parts[0], ""
    if len(parts) == 2:
        port = parts[1]
    elif len(parts) == 3:
        scheme, name, port = parts
    if len(parts) > 3 or not name or scheme not in ("", "http", "https"):
        raise api_errors.bad_request(f'invalid {_SINGULAR[resource]} request "{text}"')
    return scheme, name, port


def _path(rest: tuple[str, ...], *, slash: bool) -> str:
    """Return the normalized path below ``/proxy``, or an empty text if there is none."""
    path = "/".join(rest)
    if path and not path.startswith("/"):
        path = f"/{path}"
    if slash and not path.endswith("/"):
        path += "/"
    if not path:
        return ""
    clean = "/" + posixpath.normpath(path).lstrip("/")
    return clean if clean.endswith("/") or not path.endswith("/") else f"{clean}/"


def _escaped(path: str) -> str:
    return quote(path, safe=PATH_SAFE, errors="surrogateescape")


async def _node(scope: RequestScope, scheme: str, name: str, port: str) -> Backend:
    kubelet = await kubelet_of(scope, name)
    own_port = port in ("", str(kubelet.port))
    if not (scope.services.process_pods and own_port and kubelet.host == "127.0.0.1"):
        await _check_host(kubelet.host)
    if own_port:
        return Backend(kubelet.host, kubelet.port, scope.services.kubelets.context)
    return _end(scope, scheme, kubelet.host, _number(port))


async def _pod(scope: RequestScope, scheme: str, name: str, port: str) -> Backend:
    pod = await pod_of(scope, name)
    if not port:
        containers = (pod.get("spec") or {}).get("containers") or []
        port = next((str(one["ports"][0]["containerPort"]) for one in containers if one.get("ports")), "")
    status = pod.get("status") or {}
    address = next((one.get("ip", "") for one in status.get("podIPs") or []), status.get("podIP", ""))
    if not _is_reachable(address) and not (scope.services.process_pods and _is_process_pod(address)):
        raise api_errors.bad_request("address not allowed")
    return _end(scope, scheme, address, _number(port) if port else None)


async def _service(scope: RequestScope, scheme: str, name: str, port: str) -> Backend:
    number = decimal(port)
    if number is not None:
        service = await _named(scope, SERVICES, name)
        ports = (service.get("spec") or {}).get("ports") or []
        found = next((one for one in ports if one.get("port") == number), None)
        if found is None:
            raise _unavailable(f'no service port {number} found for service "{name}"')
        port = found.get("name", "")
    endpoints = await _named(scope, ENDPOINTS, name)
    subsets = endpoints.get("subsets") or []
    if not subsets:
        raise _unavailable(f'no endpoints available for service "{name}"')
    for subset in _from_random(subsets):
        for one in subset.get("ports") or []:
            if one.get("name", "") != port:
                continue
            for address in _from_random(subset.get("addresses") or []):
                if await _is_pod(scope, address):
                    return _end(scope, scheme, address["ip"], one["port"])
    raise _unavailable(f'no endpoints available for service "{scope.info.name}"')


async def _named(scope: RequestScope, gvr: GroupVersionResource, name: str) -> JSONObject:
    """Return a stored object. Raises NotFound, which as upstream names the resource of the request."""
    found = await find(scope, gvr, scope.namespace, name)
    if found is None:
        raise api_errors.not_found(scope.resource.gvr.group_resource, name)
    return found


async def _is_pod(scope: RequestScope, address: JSONObject) -> bool:
    """Return whether an address belongs to a pod of this namespace. A service must not lead to any other address."""
    target = address.get("targetRef") or {}
    if target.get("namespace", "") != scope.namespace:
        return False
    pod = await find(scope, PODS, scope.namespace, target.get("name", ""))
    return pod is not None and any(one.get("ip") == address.get("ip") for one in (pod.get("status") or {}).get("podIPs") or [])


def _end(scope: RequestScope, scheme: str, host: str, port: int | None) -> Backend:
    tls = scope.services.kubelets.proxied if scheme == "https" else None
    return Backend(host, port if port is not None else (443 if tls is not None else 80), tls)


def _number(port: str) -> int:
    number = decimal(port, signed=False)
    if number is None or not 0 < number < 1 << 16:
        raise _unavailable(f"error trying to reach service: dial tcp: lookup tcp/{port}: unknown port")
    return number


async def _check_host(host: str) -> None:
    """Resolve a host and check that each of its addresses is global unicast, neither loopback nor link-local. It opens no connection.

    Raises:
        BadRequest: An address is not allowed, or the name does not resolve.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        raise api_errors.bad_request(f"lookup {host}: no such host") from None
    if not all(_is_reachable(str(address[0])) for *_, address in found):
        raise api_errors.bad_request("address not allowed")


def _is_reachable(address: str) -> bool:
    """Return whether an address is global unicast in Go's sense: not loopback, link-local, multicast, unspecified or broadcast."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    ip = mapped if mapped is not None else ip
    return not (ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified or str(ip) == "255.255.255.255")


def _is_process_pod(address: str) -> bool:
    try:
        return ipaddress.ip_address(address) in PROCESS_PODS
    except ValueError:
        return False


def _from_random(items: list[Any]) -> Iterator[Any]:
    start = random.randrange(len(items)) if items else 0
    return iter(items[start:] + items[:start])


def _unavailable(message: str) -> ApiError:
    return api_errors.refusal(503, "ServiceUnavailable", message)
