"""``/exec``, ``/attach`` and ``/portforward`` of pods: connections that become streams between the client and the pod's kubelet.

WebSockets of a kind that the node's kubelet does not know are translated (``translating``, ``tunnelling``); all else is passed on as it
comes. Source: k8s.io/kubernetes pkg/registry/core/pod/rest/subresources.go, KEP-4006.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from msgspec import structs

from kubeloop.apiserver.handlers.kubelet.backends import SAFE, Place
from kubeloop.apiserver.handlers.kubelet.nodes import container_of, kubelet_of, pod_of
from kubeloop.apiserver.handlers.kubelet.options import Parameters, encoded, port_parameters, stream_parameters
from kubeloop.apiserver.handlers.kubelet.translating import V5, translate
from kubeloop.apiserver.handlers.kubelet.upgrading import forwarded_headers, is_upgrade, is_websocket, pass_on, relay, subprotocols, upgrade
from kubeloop.apiserver.handlers.scope import RequestScope
from kubeloop.apiserver.request import api_errors
from kubeloop.apiserver.request.access import access_of
from kubeloop.apiserver.request.answers import Reply, StreamingResponse, text
from kubeloop.serving.answer import Socket, SocketTakeover
from kubeloop.serving.request import Request
from kubeloop.serving.spdy import PROTOCOL, STREAM_PROTOCOL

# port-forward by WebSocket for kubelets that speak only SPDY: the client's SPDY bytes, which come in messages, go on as they are.
#
# Source: KEP-4006; k8s.io/apiserver pkg/util/proxy (tunnelling handler).


_PREFIX = f"{PROTOCOL}+"
_SUFFIX = ".k8s.io"
_OF_WEBSOCKETS = ("sec-websocket-protocol", "sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions")


def is_tunnel(request: Request) -> bool:
    """Whether a WebSocket is to carry SPDY."""
    return bool(_tunnelled(request))


async def tunnel(request: Request, place: Place) -> Reply:
    """The client's WebSocket once the kubelet has agreed, or the kubelet's refusal. Errors as ``upgrading.pass_on``."""
    headers = forwarded_headers(request, without=(*_OF_WEBSOCKETS, "upgrade", STREAM_PROTOCOL.lower(), "content-length"))
    headers += [("Upgrade", PROTOCOL), ("Content-Length", "0"), *((STREAM_PROTOCOL, one) for one in _tunnelled(request))]
    answer = await upgrade(place, "POST", headers)
    if isinstance(answer, StreamingResponse):
        return answer
    wire, received = answer
    if PROTOCOL.lower() not in received.get("Upgrade", "").lower():
        wire.abort()
        return text("unable to upgrade: missing upgrade headers in response\n", 500)
    chosen = received.get(STREAM_PROTOCOL, "").strip()
    protocols = (f"{_PREFIX}{chosen}",) if chosen else ()
    return SocketTakeover(lambda socket: relay(_SocketBytes(socket), wire), protocols, close=wire.abort)


def _tunnelled(request: Request) -> list[str]:
    return [one.removeprefix(_PREFIX) for one in subprotocols(request) if one.startswith(_PREFIX) and one.endswith(_SUFFIX)]


class _SocketBytes:
    """The bytes within a WebSocket's binary messages."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        while True:
            message = await self._socket.receive()
            if not isinstance(message, bytes):
                return b""  # the end, or text, which is no part of a tunnel
            if message:
                return message

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)


@dataclass(frozen=True, slots=True)
class _Wanted:
    place: Place
    websockets: bool
    parameters: Parameters


async def exec_(scope: RequestScope) -> Reply:
    """Run a command in a container."""
    parameters = stream_parameters(scope.request, command=True)
    return await _run(scope, await _in_container(scope, "exec", parameters))


async def attach(scope: RequestScope) -> Reply:
    """Take part in what a container's process reads and writes."""
    parameters = stream_parameters(scope.request, command=False)
    return await _run(scope, await _in_container(scope, "attach", parameters))


async def port_forward(scope: RequestScope) -> Reply:
    """Connections to ports of a pod."""
    _may_create(scope)
    parameters = port_parameters(scope.request)
    wanted = await _wanted(scope, "portForward", "", parameters)
    if not wanted.websockets and is_websocket(scope.request) and is_tunnel(scope.request):
        return await tunnel(scope.request, wanted.place)
    return await _pass_on(scope, wanted)


async def _in_container(scope: RequestScope, action: str, parameters: Parameters) -> _Wanted:
    _may_create(scope)
    pod = await pod_of(scope, scope.info.name)
    return await _wanted(scope, action, container_of(pod, scope.request.parameter("container")), parameters)


def _may_create(scope: RequestScope) -> None:
    """WebSockets come as GET; what they do needs the permission to create all the same (kubernetes issue 133515).

    Raises:
        BadRequest: a dry run, which there is none of.
        Forbidden
    """
    if "dryRun" in scope.request.query:
        raise api_errors.bad_request("dryRun is not supported")
    if scope.info.verb != "create":
        decision = scope.services.authorizer.authorize(access_of(scope.user, structs.replace(scope.info, verb="create")))
        if not decision.allowed:
            raise api_errors.forbidden(scope.info.group_resource, scope.info.name, decision.reason)


async def _wanted(scope: RequestScope, action: str, container: str, parameters: Parameters) -> _Wanted:
    name = scope.info.name
    pod = await pod_of(scope, name)
    node = (pod.get("spec") or {}).get("nodeName")
    if not node:
        raise api_errors.bad_request(f"pod {name} does not have a host assigned")
    kubelet = await kubelet_of(scope, node)
    parts = ["", action, scope.namespace, name, *([container] if container else [])]
    path = quote("/".join(parts), safe=SAFE)
    place = Place(kubelet.host, kubelet.port, scope.services.kubelets.context, path, encoded(parameters))
    return _Wanted(place, kubelet.websockets, parameters)


async def _run(scope: RequestScope, wanted: _Wanted) -> Reply:
    request = scope.request
    if not wanted.websockets and is_websocket(request) and V5 in subprotocols(request):
        return translate(wanted.place, frozenset(name for name, _ in wanted.parameters))
    return await _pass_on(scope, wanted)


async def _pass_on(scope: RequestScope, wanted: _Wanted) -> Reply:
    if not is_upgrade(scope.request):
        raise api_errors.bad_request("Upgrade request required")
    return await pass_on(scope.request, wanted.place)
